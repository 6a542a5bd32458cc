"""What `difftool report` is like in a real browser; explore.py runs it."""

import subprocess
import time

import devtools


def run(tool, folder, *arguments):
    done = subprocess.run([tool, *map(str, arguments)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"


def the_skip_link_is_first_and_leads_to_the_main_figure(page):
    page.js("document.activeElement.blur()")
    page.press("Tab")
    assert page.js("document.activeElement.className") == "skip", page.js("document.activeElement.outerHTML")
    assert page.js("document.activeElement.getBoundingClientRect().left") >= 0, "the focused skip link is in view"
    page.press("Enter", text="\r")
    page.until("location.hash === '#main'", "the skip link is followed")
    assert page.js("document.activeElement.id") == "main"
    follows = "document.querySelector('main figure').compareDocumentPosition(document.querySelector('main table')) & 4"
    assert page.js(follows) == 4, "the main figure comes before the tables"


def a_table_is_one_tab_stop(page):
    stops = page.js("""[...document.querySelectorAll('table')].map((table) => {
        const inside = table.parentElement.querySelectorAll('button, a, [tabindex="0"]');
        return [...inside].filter((element) => element.tabIndex === 0).length + (table.parentElement.tabIndex === 0 ? 1 : 0); })""")
    assert stops and max(stops) <= 1, f"tab stops of the tables: {stops}"
    assert page.js("[...document.querySelectorAll('table')].every((table) => table.caption && table.caption.textContent)")


def headings_sort_up_down_and_back(page):
    column = """[...document.querySelector('table.sortable').tBodies[0].rows].map((row) => row.cells[0].textContent)"""
    before = page.js(column)
    page.js("document.querySelector('table.sortable thead button').focus()")
    sort = "document.querySelector('table.sortable th').getAttribute('aria-sort')"
    seen = []
    for _ in range(3):
        page.press("Enter", text="\r")
        seen.append((page.js(sort), page.js(column)))
    assert [state for state, _ in seen] == ["ascending", "descending", None], seen
    assert seen[0][1] == sorted(before) and seen[1][1] == sorted(before, reverse=True) and seen[2][1] == before, seen
    page.press("ArrowRight")
    assert page.js("document.activeElement === document.querySelectorAll('table.sortable thead button')[1]"), "arrows go on"
    assert "Headings sort" in page.js("document.querySelector('p.hint').textContent")


def the_contents_lead_to_folded_tables_and_back(page):
    page.js("document.querySelector('#contents details').open = true")
    folded = "[...document.querySelectorAll('#contents ul ul a')].find((a) => document.querySelector(a.hash).closest('details:not([open])'))"
    assert page.js(f"Boolean({folded})"), "some tables are folded away"
    name = page.js(f"{folded}.hash")
    page.js(f"{folded}.click()")
    page.until(f"!document.querySelector('{name}').closest('details:not([open])')", "a folded table unfolds")
    page.until(f"Math.abs(document.querySelector('{name}').getBoundingClientRect().top) < innerHeight", "it is in view")
    assert page.js("[...document.querySelectorAll('a')].some((a) => a.hash === '#contents')"), "there is a way back"


def it_fits_a_telephone_and_the_dark(page, shots):
    page.resize(400, 800, mobile=True)
    page.js("new Promise((done) => setTimeout(done, 300))")
    wide = page.js("document.documentElement.scrollWidth")
    assert wide <= 400, f"{wide} pixels wide"
    hints = page.js("""[...document.querySelectorAll('table')].filter((t) => !t.closest('details:not([open])') && t.scrollWidth > t.parentElement.clientWidth + 1)
        .map((t) => t.parentElement.previousElementSibling.textContent)""")
    assert hints and all("scrolls sideways" in hint for hint in hints), hints
    figures = page.js("""[...document.querySelectorAll('figure .scroll')].filter((box) => !box.closest('details:not([open])')).map((box) =>
        [box.scrollWidth > box.clientWidth + 1, !box.parentElement.querySelector('.hint').hidden])""")
    assert figures and all(is_wide == says_so for is_wide, says_so in figures), figures
    if shots:
        page.screenshot(shots / "report-400px.png")
    page.resize(1280, 900)
    light = page.js("getComputedStyle(document.body).backgroundColor")
    page.dark()
    assert page.js("getComputedStyle(document.body).backgroundColor") != light
    if shots:
        page.screenshot(shots / "report-dark.png")
    page.dark(medium="print")
    ink = page.js("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
    assert max(ink) < 80, f"printed in {ink}"
    hidden = page.js("[...document.querySelectorAll('nav, .hint, .explorer')].every((element) => element.offsetHeight === 0)")
    assert hidden, "what only a screen can follow is not printed"
    page.dark(False)


def open_explorer(page):
    """As a reader with a keyboard: to the summary of the explorer, Enter."""
    page.until("document.querySelector('details.explorer summary')", "there is an explorer")
    page.js("document.querySelector('details.explorer summary').focus()")
    page.press("Enter", text="\r")
    page.until("document.querySelector('details.explorer iframe')", "Enter opens it")
    frame = page.frame()
    page.until("document.documentElement.dataset.ready === 'yes'", "the explorer is ready", session=frame)
    return frame


def an_explorer_opens_in_the_report(page, shots):
    assert page.js("document.querySelectorAll('iframe').length") == 0, "nothing is unpacked before it is opened"
    start = time.monotonic()
    frame = open_explorer(page)
    inner = lambda expression: page.js(expression, frame)
    print(f"  the explorer in the report is ready {time.monotonic() - start:.1f} s after it is opened")
    assert inner("document.querySelectorAll('.head canvas').length") > 0 and inner("panels.length") == 3
    # It cannot reach the report, and the report cannot reach it.
    assert inner("(() => { try { return parent.document.title; } catch (error) { return error.name; } })()") == "SecurityError"
    assert page.js("document.querySelector('iframe').contentDocument") is None
    # Keys: Tab from the summary goes into the frame, and to its skip link first.
    page.js("document.querySelector('details.explorer summary').focus()")
    page.press("Tab")
    page.until("document.activeElement.tagName === 'IFRAME'", "Tab goes into the frame")
    page.until("document.activeElement.id === 'skip'", "the frame's skip link has the focus", session=frame)
    page.press("Enter", text="\r")
    page.until("document.activeElement.id === 'maps'", "it leads to the maps", session=frame)
    assert page.js("location.protocol") == "file:" and inner("location.href") == "about:srcdoc"
    quantity = inner("state.quantity")
    inner("panels[0].canvas.focus()")
    page.press("m", text="m")
    page.until(f"state.quantity !== '{quantity}'", "keys reach the maps", session=frame)
    if shots:
        page.js("document.querySelector('details.explorer').scrollIntoView()")
        inner("toAnswer()")
        page.js("new Promise((done) => setTimeout(done, 1000))")
        page.screenshot(shots / "report-explorer.png", whole=False)


def check(browser, tool, folder, shots):
    """Two runs, compared, one of them with an explorer."""
    run(tool, folder, "needle", "--ctx", 512, "--samples", 3, "--needles", "1,2", "--out", "one", "-q")
    run(tool, folder, "report", "one", "explore", "-o", "report.html", "-q")
    run(tool, folder, "report", "one", "--compare", "-o", "compared.html", "-q")
    page = devtools.Page(browser)
    try:
        page.call("Page.navigate", url="file://" + str(folder / "report.html"))
        page.until("document.readyState === 'complete'", "all of the page has been read")
        page.until("document.querySelectorAll('th button').length > 0", "the tables sort")
        the_skip_link_is_first_and_leads_to_the_main_figure(page)
        a_table_is_one_tab_stop(page)
        headings_sort_up_down_and_back(page)
        the_contents_lead_to_folded_tables_and_back(page)
        assert page.js("[...document.images].every((image) => image.alt.length > 40)"), "figures say what is seen"
        if shots:
            page.screenshot(shots / "report.png")
        it_fits_a_telephone_and_the_dark(page, shots)
        an_explorer_opens_in_the_report(page, shots)
        page.call("Page.navigate", url="file://" + str(folder / "compared.html"))
        page.until("document.querySelector('#comparison table')", "the comparison is there")
        assert page.js("document.querySelector('#comparison').compareDocumentPosition(document.querySelector('#run-1'))") & 4, "it comes first"
        assert page.troubles == [], page.troubles
        assert all(url.startswith(("file://", "data:")) for url in page.requests), page.requests
        if shots:
            page.screenshot(shots / "compared.png")
    finally:
        page.close()
