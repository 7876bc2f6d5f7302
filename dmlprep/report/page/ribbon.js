// What follows the pointer and the keys over the ribbons: the node, where it runs, and why; and the modules below them.

const MODULES = 300; // modules below a ribbon; the largest
const LETTER = 7; // width of a letter of their names, in pixels

const tip = document.createElement('div');
tip.className = 'tip noprint';
tip.hidden = true;

function showTip({ node, block }, x, y) {
  tip.replaceChildren();
  const title = document.createElement('b');
  title.textContent = node ? node.name : pathOf(block);
  tip.append(title);
  for (const [name, text] of node ? facts(node) : blockFacts(block)) {
    if (name === 'role' && node.kind !== 'cpu') continue;
    const line = document.createElement('div');
    line.textContent = name === 'runs on' ? `on ${text}` : name === 'operator' ? text : `${name}: ${text}`;
    tip.append(line);
  }
  tip.hidden = false;
  const width = tip.offsetWidth;
  tip.style.left = `${Math.max(4, Math.min(x - width / 2, document.documentElement.clientWidth - width - 4)) + scrollX}px`;
  tip.style.top = `${y + 8 + scrollY}px`;
}

// The modules of the first level, each with the colour of its worst node.
function readyModules(ribbon, table, openBlock) {
  const runs = moduleRuns(table).sort((a, b) => b.count - a.count).slice(0, MODULES);
  if (!runs.length) return;
  const [name, strip] = [document.createElement('div'), document.createElement('div')];
  [name.className, name.textContent, strip.className] = ['level', 'modules', 'modules'];
  for (const one of [name, strip]) one.setAttribute('aria-hidden', 'true');
  for (const { block, at, count } of runs) {
    const part = document.createElement('div');
    part.className = worst(block);
    const width = (ribbon.clientWidth * count) / table.nodes.length;
    part.textContent = pathOf(block).length * LETTER < width ? pathOf(block) : width < 2 * LETTER ? '' : block.title;
    part.style.left = `${(100 * at) / table.nodes.length}%`;
    part.style.width = `${(100 * count) / table.nodes.length}%`;
    part.addEventListener('pointermove', (event) => showTip({ block }, event.clientX, part.getBoundingClientRect().bottom));
    part.addEventListener('pointerleave', () => { tip.hidden = true; });
    part.addEventListener('click', () => openBlock(block));
    strip.append(part);
  }
  ribbon.after(name, strip);
}

function readyRibbon(ribbon, table, openNode) {
  const { nodes } = table;
  if (!nodes.length) return;
  const mark = document.createElement('div');
  mark.className = 'mark';
  mark.hidden = true;
  ribbon.append(mark);
  let at = 0;
  const onCpu = nodes.filter((node) => node.kind === 'cpu').map((node) => node.at);
  ribbon.tabIndex = 0;
  ribbon.setAttribute('role', 'slider');
  ribbon.setAttribute('aria-valuemin', '1');
  ribbon.setAttribute('aria-valuemax', String(nodes.length));

  const show = (to) => {
    at = Math.max(0, Math.min(nodes.length - 1, to));
    const node = nodes[at];
    const box = ribbon.getBoundingClientRect();
    const share = (at + 0.5) / nodes.length;
    mark.hidden = false;
    mark.style.left = `${100 * share}%`;
    ribbon.setAttribute('aria-valuenow', String(at + 1));
    ribbon.setAttribute('aria-valuetext', [node.name, ...facts(node).map((fact) => fact.join(' '))].join(', '));
    showTip({ node }, box.left + share * box.width, box.bottom);
  };
  const hide = () => {
    tip.hidden = true;
    mark.hidden = true;
  };
  const under = (event) => {
    const box = ribbon.getBoundingClientRect();
    const share = Math.max(0, Math.min(0.999999, (event.clientX - box.left) / box.width));
    const index = Math.floor(share * nodes.length);
    // Several nodes lie below one pixel of a long ribbon: one on the CPU is never passed over.
    const reach = Math.ceil((2 / box.width) * nodes.length);
    if (event.clientY - box.top < 36) return index;
    const near = onCpu.filter((one) => Math.abs(one - index) <= reach);
    return near.length ? near.reduce((a, b) => (Math.abs(b - index) < Math.abs(a - index) ? b : a)) : index;
  };
  ribbon.addEventListener('pointermove', (event) => show(under(event)));
  ribbon.addEventListener('pointerleave', () => { if (document.activeElement !== ribbon) hide(); });
  ribbon.addEventListener('click', (event) => {
    // A finger cannot point without pressing: its tap tells of the node and stays here.
    if (event.pointerType === 'touch') show(under(event));
    else openNode(nodes[under(event)]);
  });
  ribbon.addEventListener('focus', () => show(at));
  ribbon.addEventListener('blur', hide);
  ribbon.addEventListener('keydown', (event) => {
    const page = Math.max(1, Math.round(nodes.length / 20));
    const next = () => onCpu.find((one) => one > at) ?? onCpu[0] ?? at;
    const to = {
      ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
      PageDown: at + page, PageUp: at - page, Home: 0, End: nodes.length - 1,
    }[event.key];
    if (to !== undefined) show(to);
    else if (event.key === 'c' && !event.ctrlKey && !event.metaKey) show(next());
    else if (event.key === 'Enter') openNode(nodes[at]);
    else if (event.key === 'Escape') hide();
    else return;
    event.preventDefault();
  });
  ribbon.setAttribute('aria-valuenow', '1');
}
