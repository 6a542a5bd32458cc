#!/usr/bin/env python3
"""Draws an explorer page at the answer, with one head of its first model:

    python3 tests/browser/picture.py runs/NAME/explore.html LAYER.HEAD PICTURE.png
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import devtools  # noqa: E402

path, head, picture = sys.argv[1:]
page = devtools.Page(devtools.find() or devtools.install(), 1000, 860)
page.open(os.path.abspath(path))
page.js(f"""(() => {{ const select = document.querySelector('#panels select');
    select.value = '{head}'; select.dispatchEvent(new Event('change')); }})()""")
page.js("read()")  # until the map of the head is drawn
page.js("toAnswer()")
page.js("new Promise((done) => setTimeout(done, 800))")
page.screenshot(picture, whole=False)
page.close()
