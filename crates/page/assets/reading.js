// The read-out that follows the pointer over drawings. The browser's own tooltip of an SVG title is slow to come and
// hard to read, and a canvas has none.

const readOut = document.createElement("div");
readOut.id = "read-out";
readOut.hidden = true;
readOut.setAttribute("aria-hidden", "true"); // what it says is a label of the drawing, or is in the text beside it
document.body.append(readOut);

function hideReadOut() {
  readOut.hidden = true;
}

// Shows `text` beside the pointer of `event`, inside the window. The first of several lines is a heading.
function readAt(event, text) {
  const [head, ...lines] = text.split("\n");
  const title = document.createElement(lines.length > 0 ? "b" : "span");
  title.textContent = head;
  readOut.replaceChildren(title, ...lines.flatMap((line) => [document.createElement("br"), line]));
  readOut.hidden = false;
  const room = readOut.getBoundingClientRect();
  // Not the window's width, which a scroll bar takes a part of.
  const [width, height] = [document.documentElement.clientWidth, window.innerHeight];
  const left = Math.min(event.clientX + 14, width - room.width - 6);
  const below = event.clientY + 18;
  const top = below + room.height > height ? event.clientY - room.height - 10 : below;
  readOut.style.left = `${Math.max(left, 4)}px`;
  readOut.style.top = `${Math.max(top, 4)}px`;
}

for (const title of document.querySelectorAll("svg .mark > title, svg rect > title")) {
  const mark = title.parentNode;
  mark.dataset.reading = title.textContent;
  mark.setAttribute("aria-label", title.textContent);
  title.remove();
}
for (const title of document.querySelectorAll("svg > title")) {
  title.remove(); // the label of the element says the same to a screen reader
}

document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest("[data-reading]");
  if (mark !== null) {
    readAt(event, mark.dataset.reading);
  } else if (event.target.tagName !== "CANVAS") {
    hideReadOut();
  }
});
document.addEventListener("pointerdown", (event) => {
  const mark = event.target.closest("[data-reading]"); // a finger does not hover
  if (mark !== null) {
    readAt(event, mark.dataset.reading);
  }
});
document.addEventListener("pointerleave", hideReadOut);
document.addEventListener("scroll", hideReadOut, { passive: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    hideReadOut();
  }
});
