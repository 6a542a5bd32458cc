"use strict";

const sections = [...document.querySelectorAll("section.model")];

/** What a part gives, in one sentence. */
function words(part) {
  const { place, gives, alone, through, spread, share, without } = part.dataset;
  if (gives === undefined) return `Part ${place} was taken out in a group only.`;
  const readings = [`Part ${place}: gives ${gives} nats${spread ? ` (spread over orders ${spread})` : ""}`];
  if (alone) readings.push(`alone ${alone}`);
  if (through) readings.push(`through others ${through}`);
  if (share) readings.push(`${share} of the output`);
  if (without) readings.push(`without it the answer has ${without}`);
  return `${readings.join(", ")}.`;
}

for (const section of sections) {
  const parts = [...section.querySelectorAll(".part")];
  const detail = section.querySelector(".detail");
  const first = detail.textContent;
  const taken = () => parts.find((part) => part.getAttribute("aria-pressed") === "true");
  const say = (part) => { detail.textContent = part ? words(part) : first; };
  const toggle = (part) => {
    const isTaken = part.getAttribute("aria-pressed") === "true";
    for (const other of parts) other.setAttribute("aria-pressed", "false");
    if (!isTaken && part.dataset.gives !== undefined) part.setAttribute("aria-pressed", "true");
    say(taken());
    if (taken() && part.dataset.without && detail.dataset.whole) {
      detail.textContent = `Without part ${part.dataset.place} the answer has ${part.dataset.without} instead of ${detail.dataset.whole}.`;
    }
  };
  const go = (from, by) => {
    const to = parts[(parts.indexOf(from) + by + parts.length) % parts.length];
    for (const part of parts) part.tabIndex = part === to ? 0 : -1;
    to.focus();
  };
  for (const part of parts) {
    part.addEventListener("pointerenter", () => say(part));
    part.addEventListener("pointerleave", () => say(taken()));
    part.addEventListener("focus", () => say(part));
    part.addEventListener("click", () => toggle(part));
    part.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") toggle(part);
      else if (event.key === "ArrowRight" || event.key === "ArrowDown") go(part, 1);
      else if (event.key === "ArrowLeft" || event.key === "ArrowUp") go(part, -1);
      else return;
      event.preventDefault();
    });
  }
}

const controls = document.getElementById("models");
if (controls) {
  const buttons = [...controls.querySelectorAll("button")];
  const show = (chosen) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
    sections.forEach((section, i) => { section.hidden = String(i + 1) !== chosen.dataset.model; });
  };
  controls.hidden = false;
  for (const button of buttons) button.addEventListener("click", () => show(button));
  show(buttons[0]);
}

document.documentElement.dataset.ready = "yes";
