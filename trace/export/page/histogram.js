// How long the calls of one function lasted: bars over a logarithmic axis, chosen from the functions table.

const SVG = "http://www.w3.org/2000/svg";

function shape(parent, kind, attributes, text) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  if (text !== undefined) {
    element.textContent = text;
  }
  parent.append(element);
  return element;
}

// Buckets as [longest ns, calls]; the lower end of one is the upper end of the one before, or half of its own.
function drawHistogram(place, functionIndex) {
  const { buckets, figures } = trace.histograms[functionIndex];
  place.replaceChildren();
  // As wide as there is room: a drawing that is scaled down has letters too small to read.
  const width = Math.min(760, Math.max(300, place.clientWidth));
  const [height, left, bottom, top] = [230, 56, 38, 26];
  const svg = shape(place, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  const described = figures.map(([name, ns]) => `${name} ${duration(ns)}`).join(", ");
  svg.setAttribute("aria-label", `Durations of ${nameOf(functionIndex)}: ${described}`);
  const ends = buckets.map(([ns], at) => [at === 0 ? ns / 1.2 : Math.max(buckets[at - 1][0], ns / 1.2), ns]);
  const all = [...ends.flat(), ...figures.map(([, ns]) => ns)].map((ns) => Math.max(1, ns));
  const low = Math.log10(Math.min(...all));
  const high = Math.max(Math.log10(Math.max(...all)), low + 0.5);
  const x = (ns) => left + ((Math.log10(Math.max(ns, 1)) - low) / (high - low)) * (width - left - 12);
  const most = Math.max(...buckets.map(([, calls]) => calls));
  // Square roots: one slow call among a million must still be seen.
  const y = (calls) => height - bottom - Math.sqrt(calls / most) * (height - bottom - top);
  for (const calls of new Set([most, Math.max(1, Math.round(most / 4)), Math.max(1, Math.round(most / 25))])) {
    shape(svg, "line", { class: "grid", x1: left, x2: width - 8, y1: y(calls), y2: y(calls) });
    shape(svg, "text", { class: "axis", x: left - 6, y: y(calls) + 4, "text-anchor": "end" }, count(calls));
  }
  // Where few decades fit, their halves and fifths too: an axis without figures says nothing.
  const decades = (high - low) * (760 / width);
  const steps = decades < 1.5 ? [1, 2, 5] : decades < 3 ? [1, 3] : [1];
  for (let decade = Math.floor(low); decade <= Math.floor(high); decade += 1) {
    for (const ns of steps.map((step) => step * 10 ** decade).filter((ns) => Math.log10(ns) >= low && Math.log10(ns) <= high)) {
      shape(svg, "line", { class: "grid", x1: x(ns), x2: x(ns), y1: top, y2: height - bottom });
      shape(svg, "text", { class: "axis", x: x(ns), y: height - bottom + 16, "text-anchor": "middle" }, duration(ns));
    }
  }
  buckets.forEach(([, calls], at) => {
    const [from, to] = ends[at].map(x);
    const bar = shape(svg, "rect", { class: "fill", x: from + 0.5, y: y(calls), width: Math.max(1.5, to - from - 1), height: height - bottom - y(calls) });
    bar.dataset.reading = `${duration(ends[at][0])} to ${duration(ends[at][1])}\n${count(calls)} calls`;
  });
  // Figures at one place share a label, near ones take turns in two rows.
  const labels = [];
  for (const [name, ns] of figures) {
    shape(svg, "line", { class: "mark", x1: x(ns), x2: x(ns), y1: top - 2, y2: height - bottom });
    const last = labels[labels.length - 1];
    if (last !== undefined && x(ns) - last.at < 9) {
      last.words += `, ${name}`;
    } else {
      labels.push({ at: x(ns), words: name });
    }
  }
  const free = [left - 20, left - 20];
  for (const { at, words } of labels) {
    const room = words.length * 6.5 + 8;
    const start = Math.min(at, width - room);
    const row = free[0] <= start ? 0 : 1;
    free[row] = start + room;
    shape(svg, "text", { x: start, y: 10 + row * 11 }, words);
  }
  shape(svg, "text", { class: "axis", x: width / 2, y: height - 4, "text-anchor": "middle" }, width < 500 ? "duration; height: square root of calls" : "duration of a call; height is the square root of the number of calls");
}

const histogramPlace = document.getElementById("histogram");
if (histogramPlace !== null) {
  const choice = document.getElementById("histogram-of");
  const reading = document.getElementById("histogram-reading");
  const chosen = () => {
    const functionIndex = Number(choice.value);
    drawHistogram(histogramPlace, functionIndex);
    const { figures } = trace.histograms[functionIndex];
    reading.textContent = figures.map(([name, ns]) => `${name} ${duration(ns)}`).join("; ");
  };
  choice.addEventListener("change", chosen);
  for (const button of document.querySelectorAll("button[data-function]")) {
    button.addEventListener("click", () => {
      choice.value = button.dataset.function;
      chosen();
      document.getElementById("durations").scrollIntoView({ block: "start" });
      choice.focus({ preventScroll: true });
    });
  }
  if (choice.options.length > 0) {
    onEveryLook(chosen);
    chosen();
  }
}
