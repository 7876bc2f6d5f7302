// The graph on a canvas: what the layout placed, in the page's colours.

const probe = document.createElement('span');
probe.hidden = true;

function colours() {
  document.body.append(probe);
  const found = {};
  for (const name of ['ink', 'soft', 'line', 'card', 'page', 'track', 'dml', 'single', 'cpu', 'focus', 'copy']) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

const FONT = '12px system-ui, "Segoe UI", Roboto, sans-serif';

function fitText(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : '';
}

function drawGraph(context, view, root, chosen, hue, area) {
  const { scale } = view;
  context.setTransform(area.ratio, 0, 0, area.ratio, 0, 0);
  context.fillStyle = hue.card;
  context.fillRect(0, 0, area.width, area.height);
  context.setTransform(area.ratio * scale, 0, 0, area.ratio * scale, area.ratio * view.x, area.ratio * view.y);
  context.font = FONT;
  context.textBaseline = 'middle';
  const shown = { left: -view.x / scale, top: -view.y / scale, right: (area.width - view.x) / scale, bottom: (area.height - view.y) / scale };
  drawInside(context, root, 0, 0, shown, { hue, chosen, scale });
}

function drawInside(context, block, x, y, shown, style) {
  for (const route of block.routes) drawEdge(context, route, x, y, shown, style);
  for (const child of block.children) {
    const [left, top] = [x + child.x, y + child.y];
    child.shown = { x: left, y: top };
    if (left > shown.right || top > shown.bottom || left + child.width < shown.left || top + child.height < shown.top) {
      if (child.open) placeHidden(child, left, top);
      continue;
    }
    if (child === style.chosen) {
      context.strokeStyle = style.hue.focus;
      context.lineWidth = 3 / Math.min(1, style.scale);
      context.strokeRect(left - 4, top - 4, child.width + 8, child.height + 8);
    }
    if (child.node) drawNode(context, child, left, top, style);
    else if (child.open) {
      drawOpen(context, child, left, top, style);
      drawInside(context, child, left, top, shown, style);
    } else drawClosed(context, child, left, top, style);
  }
}

function placeHidden(block, x, y) {
  for (const child of block.children) {
    child.shown = { x: x + child.x, y: y + child.y };
    if (child.open) placeHidden(child, child.shown.x, child.shown.y);
  }
}

function drawEdge(context, route, x, y, shown, { hue, chosen, scale }) {
  const { source, target } = route;
  const from = { x: x + source.x + source.width / 2, y: y + source.y + source.height };
  const to = { x: x + target.x + target.width / 2, y: y + target.y };
  const stops = [from, ...route.via.map((point) => ({ x: x + point.x + point.width / 2, y: y + point.y })), to];
  if (Math.max(...stops.map((s) => s.y)) < shown.top || Math.min(...stops.map((s) => s.y)) > shown.bottom) return;
  context.beginPath();
  context.moveTo(from.x, from.y);
  if (route.back) {
    const side = Math.max(source.x + source.width, target.x + target.width) + x + 16;
    context.bezierCurveTo(side, from.y + 20, side, to.y - 20, to.x, to.y);
  } else {
    for (let at = 1; at < stops.length; at += 1) {
      const [a, b] = [stops[at - 1], stops[at]];
      const middle = (a.y + b.y) / 2;
      context.bezierCurveTo(a.x, middle, b.x, middle, b.x, b.y);
    }
  }
  const near = chosen && (source === chosen || target === chosen);
  context.strokeStyle = near ? hue.focus : route.crosses ? hue.cpu : hue.copy;
  context.globalAlpha = near || route.crosses ? 1 : 0.55;
  context.lineWidth = (near ? 2 : 1.2) / Math.min(1, Math.max(scale, 0.3));
  context.setLineDash(route.back ? [3, 3] : route.crosses ? [7, 3] : []);
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;
}

function drawNode(context, leaf, x, y, { hue, scale }) {
  const { kind, operator } = leaf.node;
  context.fillStyle = kind === 'cpu' ? hue.card : hue[kind];
  context.strokeStyle = hue[kind];
  context.lineWidth = kind === 'cpu' ? 2.5 : 1;
  box(context, x, y, leaf.width, leaf.height, kind === 'cpu' ? 0 : 6);
  if (scale < 0.3) return;
  context.fillStyle = kind === 'cpu' || kind === 'single' ? hue.ink : '#fff';
  context.textAlign = 'center';
  context.fillText(fitText(context, operator, leaf.width - 12), x + leaf.width / 2, y + leaf.height / 2 + 1);
  if (kind === 'cpu' && scale > 0.6) tag(context, 'CPU', x + leaf.width, y, hue);
}

function tag(context, text, right, y, hue) {
  context.font = `bold 9px ${FONT.slice(5)}`;
  const width = context.measureText(text).width + 8;
  context.fillStyle = hue.cpu;
  context.fillRect(right - width, y - 7, width, 13);
  context.fillStyle = hue.card;
  context.textAlign = 'center';
  context.fillText(text, right - width / 2, y);
  context.font = FONT;
}

// The kind of the worst node in a block, which gives the block its colour.
function worst({ kinds }) {
  return ['cpu', 'single'].find((kind) => kinds[kind]) ?? 'dml';
}

function drawClosed(context, block, x, y, { hue, scale }) {
  context.fillStyle = hue.track;
  context.strokeStyle = hue[worst(block)];
  context.lineWidth = block.kinds.cpu ? 2 : 1;
  box(context, x, y, block.width, block.height, 6);
  // What is inside, as a bar: how much of it runs where.
  let at = x + 10;
  const room = block.width - 20;
  for (const kind of ['dml', 'single', 'cpu']) {
    const width = Math.max(block.kinds[kind] ? 3 : 0, (room * block.kinds[kind]) / block.count);
    context.fillStyle = hue[kind];
    context.fillRect(at, y + block.height - 10, Math.min(width, x + 10 + room - at), 5);
    at += width;
  }
  if (scale < 0.25) return;
  context.textAlign = 'left';
  context.fillStyle = hue.soft;
  const count = block.kinds.cpu ? `${block.count}, ${block.kinds.cpu} on CPU` : String(block.count);
  const taken = context.measureText(count).width;
  const title = fitText(context, block.title, block.width - taken - 30);
  context.fillText(count, x + block.width - 10 - taken, y + 18);
  context.fillStyle = hue.ink;
  context.fillText(title, x + 10, y + 18);
}

function drawOpen(context, block, x, y, { hue, scale }) {
  context.fillStyle = hue.page;
  context.strokeStyle = hue.line;
  context.lineWidth = 1.2;
  box(context, x, y, block.width, block.height, 8);
  if (scale < 0.25) return;
  context.fillStyle = hue.soft;
  context.textAlign = 'left';
  context.fillText(fitText(context, `− ${block.title}`, block.width - 16), x + 9, y + 13);
}

function box(context, x, y, width, height, round) {
  context.beginPath();
  context.roundRect(x, y, width, height, round);
  context.fill();
  context.stroke();
}
