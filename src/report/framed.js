
// Pages that this file holds: each becomes a frame when its part is opened for the first time. The frame has no origin and may
// run its script and nothing else.
for (const part of document.querySelectorAll("details.framed")) {
  const mount = () => {
    if (!part.open || part.querySelector("iframe")) return;
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "allow-scripts");
    frame.title = part.querySelector("summary").textContent;
    part.append(frame);
    pageText(part.dataset.page).then((text) => { frame.srcdoc = text; });
  };
  part.addEventListener("toggle", mount);
  mount();
}

// A page, which stands at the end of this file: deflated, as base64.
async function pageText(id) {
  if (document.readyState === "loading") await new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}
