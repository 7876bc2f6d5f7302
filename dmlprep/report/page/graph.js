// The view of the graph: blocks that open and close, pan, zoom, search, and what is said of the node that was chosen.

const SMALL = 60; // nodes up to which everything is open at first

// `start`: the numbers of a table and of its node that is chosen first.
function readyGraph(tables, start) {
  const [canvas, about, search, found] = ['canvas', 'about', 'search', 'found'].map((id) => document.getElementById(id));
  const context = canvas.getContext('2d');
  const area = { width: 0, height: 0, ratio: 1 };
  const view = { x: 0, y: 0, scale: 1 };
  let hue = colours();
  let table = null;
  let root = null;
  let chosen = null;
  let waiting = false;

  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (root && area.width) drawGraph(context, view, root, chosen, hue, area);
    });
  };
  const textWidth = (text) => context.measureText(text.slice(0, 60)).width;
  const relayout = () => {
    context.font = FONT;
    layOut(root, textWidth);
    placeHidden(root, 0, 0);
  };
  const resize = () => {
    const width = canvas.clientWidth;
    if (!width) return;
    area.ratio = Math.min(window.devicePixelRatio || 1, 3);
    [area.width, area.height] = [width, canvas.clientHeight];
    [canvas.width, canvas.height] = [Math.round(width * area.ratio), Math.round(area.height * area.ratio)];
    if (root && chosen === null) fit();
    redraw();
  };

  function fit() {
    if (!root || !area.width) return;
    const whole = Math.min((area.width - 24) / root.width, (area.height - 24) / root.height);
    // A long model is shown from its head, at a size that can be read.
    view.scale = Math.min(1.1, Math.max(whole, Math.min(0.85, (area.width - 24) / root.width)));
    if (view.scale < 0.05) view.scale = 0.05;
    view.x = (area.width - root.width * view.scale) / 2;
    view.y = root.height * view.scale < area.height ? (area.height - root.height * view.scale) / 2 : 6;
    redraw();
  }

  const shownWhole = () => root.width * view.scale <= area.width && root.height * view.scale <= area.height;

  function centre(item) {
    view.x = area.width / 2 - (item.shown.x + item.width / 2) * view.scale;
    view.y = area.height / 2 - (item.shown.y + Math.min(item.height, 120) / 2) * view.scale;
  }

  function zoom(factor, x = area.width / 2, y = area.height / 2) {
    const scale = Math.max(0.03, Math.min(4, view.scale * factor));
    view.x = x - ((x - view.x) * scale) / view.scale;
    view.y = y - ((y - view.y) * scale) / view.scale;
    view.scale = scale;
    redraw();
  }

  // Blocks open and close without the picture moving away from under the pointer.
  function toggle(block, open = !block.open) {
    const before = { ...block.shown };
    block.open = open;
    relayout();
    view.x += (before.x - block.shown.x) * view.scale;
    view.y += (before.y - block.shown.y) * view.scale;
    choose(block, false);
  }

  function choose(item, move = true) {
    chosen = item;
    if (move) centre(item);
    item.node ? tellNode(item.node) : tellBlock(item);
    redraw();
  }

  // Choose a node or block, and open all blocks around it.
  function reveal(item) {
    for (let block = item.parent; block; block = block.parent) block.open = true;
    relayout();
    view.scale = Math.max(view.scale, 0.7);
    choose(item);
  }

  const openNode = (node) => reveal(node.leaf);

  function tellNode(node) {
    about.replaceChildren();
    heading(node.name);
    const pill = document.createElement('span');
    pill.className = `pill ${node.kind}`;
    pill.textContent = WHERE[node.kind];
    about.append(pill);
    list(facts(node).filter(([name]) => name !== 'runs on'));
    links('reads', node.reads);
    links('read by', node.readers);
  }

  function tellBlock(block) {
    about.replaceChildren();
    heading(pathOf(block));
    list(blockFacts(block));
  }

  function heading(text) {
    const title = document.createElement('h3');
    title.textContent = text;
    about.append(title);
  }

  function list(rows) {
    const all = document.createElement('dl');
    for (const [name, text] of rows) {
      const [term, said] = [document.createElement('dt'), document.createElement('dd')];
      [term.textContent, said.textContent] = [name, text];
      all.append(term, said);
    }
    about.append(all);
  }

  function links(title, places) {
    if (!places.length) return;
    const name = document.createElement('h4');
    name.textContent = places.length > 12 ? `${title}, 12 of ${places.length}` : title;
    about.append(name, ...places.slice(0, 12).map((at) => nodeButton(table.nodes[at])));
  }

  function nodeButton(node, then = () => {}) {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = `${node.operator} ${node.name}${node.kind === 'cpu' ? ' (CPU)' : ''}`;
    button.addEventListener('click', () => { then(); openNode(node); });
    return button;
  }

  function lookFor(text) {
    const words = text.trim().toLowerCase();
    found.replaceChildren();
    found.hidden = !words;
    if (!words) return;
    const hits = [];
    for (const node of table.nodes) {
      if ([node.name, node.operator, node.module ?? '', node.place].some((text) => text.toLowerCase().includes(words))) hits.push(node);
      if (hits.length > 30) break;
    }
    const close = () => { found.hidden = true; };
    found.append(...hits.slice(0, 30).map((node) => nodeButton(node, close)));
    const end = document.createElement('div');
    end.className = 'soft small';
    end.textContent = hits.length > 30 ? 'more: type on' : hits.length ? '' : 'no node has this name';
    found.append(end);
  }

  function visible(block = root, all = []) {
    for (const child of [...block.children].sort((a, b) => a.first - b.first)) {
      all.push(child);
      if (child.open) visible(child, all);
    }
    return all;
  }

  function hit(x, y, block = root) {
    const [left, top] = [(x - view.x) / view.scale, (y - view.y) / view.scale];
    for (const child of block.children) {
      const { x: cx, y: cy } = child.shown;
      if (left >= cx && left <= cx + child.width && top >= cy && top <= cy + child.height) {
        return (child.open && hit(x, y, child)) || child;
      }
    }
    return null;
  }

  function step(by) {
    const all = visible();
    const at = all.indexOf(chosen);
    if (all.length) choose(all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + by))]);
  }

  function nextOnCpu() {
    const from = chosen?.node?.at ?? -1;
    const next = table.nodes.find((node) => node.kind === 'cpu' && node.at > from) ?? table.nodes.find((node) => node.kind === 'cpu');
    if (next) openNode(next);
  }

  function showTable(which) {
    table = tables[which];
    root = rootOf(table);
    if (!root.open) {
      for (const block of mainBlocks(root)) block.open = true;
      if (table.nodes.length <= SMALL) openAll(root, true);
    }
    chosen = null;
    relayout();
    about.replaceChildren();
    heading(`${table.total.toLocaleString('en')} nodes`);
    list([['shown', table.label], ['keys', 'arrows, Enter, + and −, 0']]);
    for (const button of document.querySelectorAll('#tables button')) {
      button.setAttribute('aria-pressed', String(button.textContent === table.label));
    }
    document.getElementById('next').hidden = !table.nodes.some((node) => node.kind === 'cpu');
    fit();
  }

  function goTo(which, item) {
    if (table !== tables[which]) showTable(which);
    if (!item.node) item.open = true;
    reveal(item);
    canvas.focus({ preventScroll: true });
    canvas.scrollIntoView({ block: 'nearest' });
  }

  function openAll(block, open) {
    for (const child of block.children) {
      if (child.node) continue;
      child.open = open;
      openAll(child, open);
    }
  }

  if (tables.length > 1) {
    document.getElementById('tables').append(...tables.map((one, at) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = one.label;
      button.addEventListener('click', () => showTable(at));
      return button;
    }));
  }
  readyPointer(canvas, { view, zoom, redraw, hit, choose, toggle });
  readySaving(() => ({ root, hue, label: table.label }));
  canvas.addEventListener('keydown', (event) => {
    const done = {
      ArrowDown: () => step(1), ArrowRight: () => step(1), ArrowUp: () => step(-1), ArrowLeft: () => step(-1),
      Enter: () => (chosen && !chosen.node ? toggle(chosen) : step(0)),
      Escape: () => chosen?.parent && chosen.parent !== root && toggle(chosen.parent, false),
      '+': () => zoom(1.25), '=': () => zoom(1.25), '-': () => zoom(0.8), 0: fit,
    }[event.key];
    if (!done || event.ctrlKey || event.metaKey) return;
    done();
    event.preventDefault();
  });
  search.addEventListener('input', () => lookFor(search.value));
  search.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') found.querySelector('button')?.click();
    if (event.key === 'Escape') found.hidden = true;
  });
  const pressed = { larger: () => zoom(1.25), smaller: () => zoom(0.8), fit, next: nextOnCpu, collapse: () => { openAll(root, false); chosen = null; relayout(); fit(); } };
  for (const [id, act] of Object.entries(pressed)) document.getElementById(id).addEventListener('click', act);
  document.getElementById('graph').hidden = false;
  new ResizeObserver(resize).observe(canvas);
  showTable(start?.[0] ?? tables.length - 1);
  resize();
  if (start) {
    const { leaf } = table.nodes[start[1]];
    if (shownWhole() && visible().includes(leaf)) choose(leaf, false);
    else reveal(leaf);
  }
  return {
    openNode: (which, node) => goTo(which, node.leaf),
    openBlock: goTo,
    recolour() {
      hue = colours();
      if (root && area.width) drawGraph(context, view, root, chosen, hue, area);
    },
  };
}

// Drag, wheel and fingers. A click opens a closed block, closes an open one at its title, and chooses a node.
function readyPointer(canvas, { view, zoom, redraw, hit, choose, toggle }) {
  const down = new Map();
  let moved = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('pointerdown', (event) => {
    tip.hidden = true;
    if (!down.size) moved = 0;
    down.set(event.pointerId, at(event));
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    const last = down.get(event.pointerId);
    const now = at(event);
    if (!last) {
      const item = event.pointerType === 'touch' ? null : hit(now.x, now.y);
      if (item && !item.open) showTip(item.node ? item : { block: item }, event.clientX, event.clientY);
      else tip.hidden = true;
      return;
    }
    moved += Math.hypot(now.x - last.x, now.y - last.y);
    const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const apart = (one) => Math.max(1, Math.hypot(one.x - other.x, one.y - other.y));
      zoom(apart(now) / apart(last), (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else {
      view.x += now.x - last.x;
      view.y += now.y - last.y;
      redraw();
    }
    down.set(event.pointerId, now);
  });
  const up = (event) => {
    const last = down.get(event.pointerId);
    down.delete(event.pointerId);
    if (!last || moved > 5 || event.type === 'pointercancel') return;
    const item = hit(last.x, last.y);
    if (!item) return;
    const title = (last.y - view.y) / view.scale - item.shown.y < GAP.title;
    if (item.node) choose(item, false);
    else if (!item.open || title) toggle(item);
  };
  canvas.addEventListener('pointerup', up);
  canvas.addEventListener('pointercancel', up);
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    const { x, y } = at(event);
    zoom(Math.exp(-event.deltaY / 300), x, y);
    event.preventDefault();
  }, { passive: false });
}
