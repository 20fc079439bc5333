// The flame graph: outermost calls on top, width by self time of a call and all below it. One canvas; frames narrower
// than a pixel are not drawn. Works with keys alone: arrows walk, Enter zooms, Escape goes back, slash searches.

const flameCanvas = document.getElementById("flame");
if (flameCanvas !== null) {
  const ROW_PX = 19;
  const { parent, fn, calls } = trace.contexts;
  const reading = document.getElementById("flame-reading");
  const search = document.getElementById("flame-search");
  const found = document.getElementById("flame-found");
  const children = parent.map(() => []);
  const roots = [];
  const depth = parent.map(() => 0);
  parent.forEach((above, at) => {
    if (above < 0) {
      roots.push(at);
    } else {
      children[above].push(at);
      depth[at] = depth[above] + 1;
    }
  });
  let selfNs = trace.contexts.corrected;
  let widthNs = [];
  let zoomed = -1;
  let chosen = -1;
  let boxes = [];
  let matches = null;
  const redraw = redrawer(draw);

  // Parents stand before their children, so from the end on each width is complete when it is added.
  function measure(name) {
    selfNs = trace.contexts[name];
    widthNs = [...selfNs];
    for (let at = parent.length - 1; at >= 0; at -= 1) {
      if (parent[at] >= 0) {
        widthNs[parent[at]] += widthNs[at];
      }
    }
    for (const list of [roots, ...children]) {
      list.sort((a, b) => widthNs[b] - widthNs[a]);
    }
  }

  function totalNs() {
    return roots.reduce((sum, at) => sum + widthNs[at], 0);
  }

  function ancestors(at) {
    const path = [];
    for (let here = parent[at]; here >= 0; here = parent[here]) {
      path.unshift(here);
    }
    return path;
  }

  function draw() {
    const path = zoomed < 0 ? [] : ancestors(zoomed);
    const top = zoomed < 0 ? roots : [zoomed];
    const scaleNs = zoomed < 0 ? totalNs() : widthNs[zoomed];
    const deepest = (list, level) => list.reduce((most, at) => (
      widthNs[at] / scaleNs * flameCanvas.clientWidth < 1 ? most : Math.max(most, deepest(children[at], level + 1))
    ), level);
    const rows = Math.max(1, deepest(top, path.length));
    const [context, widthPx] = fitted(flameCanvas, rows * ROW_PX + 2);
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, widthPx, rows * ROW_PX + 2);
    const fills = trace.layers.map((_, layer) => hatched(context, layer));
    boxes = [];
    if (!(scaleNs > 0)) {
      context.fillStyle = colours.quiet;
      context.fillText("no time of this kind in the trace", 4, ROW_PX / 2);
      return;
    }
    const frame = (at, x, width, level, isAbove) => {
      boxes.push({ at, x, width, level });
      const isFaint = (matches !== null && !matches.has(at)) || isAbove;
      context.globalAlpha = isFaint ? 0.3 : 1;
      context.fillStyle = fills[layerOf(fn[at])];
      context.fillRect(x, level * ROW_PX, Math.max(width - 0.6, 0.6), ROW_PX - 1);
      context.globalAlpha = 1;
      const label = clipped(nameOf(fn[at]), width - 8);
      if (label !== "") {
        const isHatched = [IDLE, TRACER].includes(layerOf(fn[at]));
        if (isHatched) {
          backLabel(context, label, x + 4, level * ROW_PX + ROW_PX / 2);
        }
        context.fillStyle = isFaint || isHatched ? colours.ink : colours["on-layer"];
        context.fillText(label, x + 4, level * ROW_PX + ROW_PX / 2);
      }
      if (matches !== null && matches.has(at) && width > 2) {
        context.strokeStyle = colours.ink;
        context.lineWidth = 1.5;
        context.strokeRect(x + 0.7, level * ROW_PX + 0.7, Math.max(width - 2, 1), ROW_PX - 2.4);
      }
      if (at === chosen) {
        context.strokeStyle = colours.accent;
        context.lineWidth = 2.5;
        context.strokeRect(x + 1, level * ROW_PX + 1, Math.max(width - 2.6, 1), ROW_PX - 3);
      }
    };
    path.forEach((at, level) => frame(at, 0, widthPx, level, true));
    const below = (list, x, level) => {
      for (const at of list) {
        const width = (widthNs[at] / scaleNs) * widthPx;
        if (width < 1) {
          break; // the widest come first
        }
        frame(at, x, width, level, false);
        below(children[at], x, level + 1);
        x += width;
      }
    };
    below(top, 0, path.length);
  }

  // What is known of a context: a heading and lines.
  function linesOf(at) {
    const tracer = trace.functions[fn[at]][2] & 1 ? "; mostly the tracer's cost" : "";
    const callsHere = calls[at] > 0
      ? `${count(calls[at])} calls here; ${duration(widthNs[at] / calls[at])} each`
      : "no call here was seen whole";
    const ofAll = totalNs() > 0 ? percent(widthNs[at] / totalNs()) : "\u2013";
    return [
      nameOf(fn[at]),
      `total ${duration(widthNs[at])}, ${ofAll} of all; self ${duration(selfNs[at])}`,
      callsHere,
      ...figuresOf(fn[at]),
      `${trace.layers[layerOf(fn[at])]}${tracer}`,
    ];
  }

  function tell(at) {
    if (at < 0) {
      return;
    }
    const path = [...ancestors(at), at].map((here) => nameOf(fn[here])).join(" \u203a ");
    reading.textContent = `${path}: ${linesOf(at).slice(1).join("; ")}`;
  }

  function choose(at) {
    // What is chosen is seen: outside of the frame that fills the width, its caller does from now on.
    const isShown = zoomed < 0 || at < 0 || at === zoomed || ancestors(at).includes(zoomed) || ancestors(zoomed).includes(at);
    if (!isShown) {
      zoomed = parent[at];
    }
    chosen = at;
    tell(at);
    redraw();
  }

  function zoom(at) {
    zoomed = at;
    if (chosen < 0 || at < 0) {
      chosen = at;
    }
    redraw();
  }

  function boxAt(event) {
    const place = flameCanvas.getBoundingClientRect();
    const level = Math.floor((event.clientY - place.top) / ROW_PX);
    const x = event.clientX - place.left;
    return boxes.find((box) => box.level === level && x >= box.x && x < box.x + box.width);
  }

  flameCanvas.addEventListener("pointermove", (event) => {
    const box = boxAt(event);
    flameCanvas.style.cursor = box === undefined ? "default" : "pointer";
    if (box === undefined) {
      hideReadOut();
    } else {
      tell(box.at);
      readAt(event, linesOf(box.at).join("\n"));
    }
  });
  flameCanvas.addEventListener("pointerleave", hideReadOut);
  flameCanvas.addEventListener("click", (event) => {
    const box = boxAt(event);
    if (box !== undefined) {
      choose(box.at);
      zoom(box.at);
    }
  });
  flameCanvas.addEventListener("keydown", (event) => {
    const siblings = chosen >= 0 && parent[chosen] >= 0 ? children[parent[chosen]] : roots;
    const place = siblings.indexOf(chosen);
    const steps = {
      ArrowDown: () => choose(chosen < 0 ? roots[0] : children[chosen][0] ?? chosen),
      ArrowUp: () => choose(chosen >= 0 && parent[chosen] >= 0 ? parent[chosen] : chosen),
      ArrowRight: () => choose(siblings[Math.min(place + 1, siblings.length - 1)]),
      ArrowLeft: () => choose(siblings[Math.max(place - 1, 0)]),
      Enter: () => zoom(chosen),
      Escape: () => zoom(zoomed < 0 ? -1 : parent[zoomed]),
      Home: () => zoom(-1),
      0: () => zoom(-1),
    };
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (isPlain && steps[event.key] !== undefined && roots.length > 0) {
      event.preventDefault();
      event.stopPropagation(); // the time chart has keys for the whole page
      steps[event.key]();
    }
  });
  document.getElementById("flame-out").addEventListener("click", () => zoom(zoomed < 0 ? -1 : parent[zoomed]));
  document.getElementById("flame-all").addEventListener("click", () => zoom(-1));
  for (const choice of document.querySelectorAll("input[name=measure]")) {
    choice.addEventListener("change", () => {
      measure(choice.value);
      look();
      redraw();
      tell(chosen);
    });
  }
  // Matches that stand in no other match, the widest first: what a person goes through.
  let outermost = [];
  let nextMatch = -1;
  function look() {
    const named = functionsNamed(search.value);
    nextMatch = -1;
    if (named === null) {
      matches = null;
      found.textContent = "";
      return;
    }
    matches = new Set(fn.flatMap((index, at) => (named.has(index) ? [at] : [])));
    // A match inside a match is part of it. Parents stand first, so one look at the parent is enough.
    const isInside = parent.map(() => false);
    parent.forEach((above, at) => {
      isInside[at] = above >= 0 && (isInside[above] || matches.has(above));
    });
    outermost = [...matches].filter((at) => !isInside[at]).sort((a, b) => widthNs[b] - widthNs[a]);
    const ns = outermost.reduce((sum, at) => sum + widthNs[at], 0);
    found.textContent = matches.size === 0
      ? "no function of that name in this picture"
      : `${count(matches.size)} contexts, ${percent(totalNs() > 0 ? ns / totalNs() : 0)} of the time; Enter goes through them`;
  }
  search.addEventListener("input", () => {
    look();
    redraw();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && matches !== null && outermost.length > 0) {
      event.preventDefault();
      nextMatch = turned(nextMatch, event.shiftKey ? -1 : 1, outermost.length);
      const at = outermost[nextMatch];
      // One too narrow to see is shown by itself.
      if (!boxes.some((box) => box.at === at && box.width >= 3)) {
        zoomed = at;
      }
      choose(at);
      found.textContent = `${count(nextMatch + 1)} of ${count(outermost.length)}, the widest first`;
    }
  });
  leaveSearch(search, flameCanvas);
  const begin = document.querySelector("input[name=measure]:checked");
  measure(begin === null ? "corrected" : begin.value);
  onEveryLook(redraw);
  redraw();
}
