// The nodes of the page as objects, and their blocks: their modules, or the scopes that their names write
// (/encoder/layer.0/...).

const SECTION = 60; // children of a block beyond which they are put into sections
const KIND = { d: 'dml', s: 'single', c: 'cpu' };
const WHERE = { dml: 'DirectML', single: 'DirectML, in FP32', cpu: 'CPU' };
const ROLE = { c: 'compute', s: 'shape arithmetic', k: 'control flow', f: 'folded at load' };

const numbers = (text) => (text ? text.split(' ').map(Number) : []);

function readTable(data) {
  const shared = numbers(data.shared);
  const columns = {};
  for (const name of ['operator', 'reason', 'notFused', 'type', 'partition', 'graph', 'module', 'place']) columns[name] = numbers(data[name]);
  const inputs = data.inputs ? data.inputs.split(' ') : [];
  let last = '';
  const nodes = data.names.map((rest, at) => {
    last = last.slice(0, shared[at]) + rest;
    return {
      at,
      name: last,
      kind: KIND[data.kinds[at]],
      role: ROLE[data.roles[at]],
      operator: data.operators[columns.operator[at]],
      reason: data.reasons[columns.reason[at]],
      notFused: columns.notFused[at] < 0 ? '' : data.reasons[columns.notFused[at]],
      type: columns.type[at] < 0 ? '' : data.types[columns.type[at]],
      partition: columns.partition[at],
      graph: columns.graph.length ? data.graphs[columns.graph[at]] : '',
      module: data.modules[columns.module[at]] ?? null,
      place: data.places[columns.place[at]] ?? '',
      reads: inputs[at] === '-' ? [] : inputs[at].split(',').map(Number),
      readers: [],
      crossings: [],
    };
  });
  for (const node of nodes) for (const from of node.reads) nodes[from].readers.push(node.at);
  const crossed = data.crossings;
  const rows = [numbers(crossed.producer), numbers(crossed.consumer), numbers(crossed.nbytes)];
  crossed.values.forEach((value, at) => {
    const crossing = { value, up: crossed.to[at] === 'd', from: rows[0][at], to: rows[1][at], bytes: rows[2][at] };
    for (const end of new Set([crossing.from, crossing.to])) if (end >= 0) nodes[end].crossings.push(crossing);
  });
  return { label: data.label, total: data.total, nodes };
}

function bytesText(count) {
  if (count < 0) return 'unknown size';
  if (count < 1000) return `${count} B`;
  return count < 1e5 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

// What is said of a node beside its name.
function facts(node) {
  const found = [['operator', node.operator], ['runs on', WHERE[node.kind]]];
  if (node.reason) found.push(['why', node.reason]);
  found.push(['role', node.role]);
  if (node.partition >= 0) found.push(['fused partition', String(node.partition)]);
  if (node.notFused) found.push(['not fused', node.notFused]);
  if (node.type) found.push(['makes', node.type]);
  if (node.graph) found.push(['in', node.graph]);
  if (node.module) found.push(['module', node.module]);
  if (node.place) found.push(['source', node.place]);
  for (const one of node.crossings.slice(0, 8)) {
    found.push(['copied', `${one.value}, to ${one.up ? 'DirectML' : 'the CPU'}, ${bytesText(one.bytes)}`]);
  }
  return found;
}

// What is said of a block beside its path.
function blockFacts({ count, kinds: { dml, single, cpu } }) {
  const found = [['nodes', String(count)], ['on DirectML', String(dml + single)]];
  if (single) found.push(['of them in FP32', String(single)]);
  return [...found, ['on the CPU', String(cpu)]];
}

const pathOf = (block) => block.path.replace(/#.*/, '') || block.title;

// The blocks of a table, made when they are first needed.
function rootOf(table) {
  table.root ??= liftEdges(blocksOf(table.nodes), table.nodes);
  return table.root;
}

// From the root, the blocks that hold nearly all nodes: a model says nothing while they are closed.
function mainBlocks(root) {
  const found = [root];
  while (root.children.length) {
    const largest = root.children.reduce((a, b) => ((b.count ?? 1) > (a.count ?? 1) ? b : a));
    if (largest.node || largest.count < 0.8 * root.count) break;
    found.push(largest);
    root = largest;
  }
  return found;
}

// Neighbouring nodes of one module of the first level: its block, the first node, and how many there are.
function moduleRuns(table) {
  const main = new Set(mainBlocks(rootOf(table)));
  const runs = [];
  for (const { leaf, at } of table.nodes) {
    let block = leaf;
    while (!main.has(block.parent)) block = block.parent;
    if (runs.at(-1)?.block === block) runs.at(-1).count += 1;
    else if (block !== leaf) runs.push({ block, at, count: 1 });
    else runs.push({ block: null, at, count: 1 });
  }
  return runs.filter((run) => run.block);
}

// Blocks in one another. A leaf is a node; a block has children, the number of its nodes by kind, and its first node.
function blocksOf(nodes) {
  const root = newBlock('', '', null);
  const scopes = scopesOf(nodes);
  for (const node of nodes) {
    let block = root;
    const join = node.module === null ? '/' : '.';
    for (const word of scopes[node.at]) {
      let inner = block.named.get(word);
      if (!inner) {
        inner = newBlock(word, block.path ? `${block.path}${join}${word}` : word, block);
        inner.join = join;
        block.named.set(word, inner);
        block.children.push(inner);
      }
      block = inner;
    }
    const leaf = { node, title: node.name.slice(node.name.lastIndexOf('/') + 1) || node.name, parent: block, first: node.at, depth: 0 };
    block.children.push(leaf);
    node.leaf = leaf;
  }
  settle(root);
  return root;
}

// The scopes of each node: its module's, where that is known, otherwise its name's. One without (tools that join nodes give
// new names) has what the nodes around it share.
function scopesOf(nodes) {
  const named = (node) => (node.graph ? `${node.graph}/` : '').concat(node.name).split('/').filter(Boolean).slice(0, 24).slice(0, -1);
  const own = nodes.map((node) => (node.module === null ? named(node) : node.module.split('.').filter(Boolean).slice(0, 24)));
  const shared = (a, b) => a.slice(0, a.findIndex((word, at) => word !== b[at]) >>> 0);
  for (const node of nodes) {
    if (own[node.at].length || node.module !== null) continue;
    const above = own[node.reads.find((at) => own[at].length)];
    const below = own[node.readers.find((at) => own[at].length)];
    own[node.at] = above && below ? shared(above, below) : above ?? below ?? [];
  }
  return own;
}

function newBlock(title, path, parent) {
  return { title, path, parent, children: [], named: new Map(), open: false, count: 0, kinds: { dml: 0, single: 0, cpu: 0 } };
}

// Children in order; a block that holds one block alone becomes one with it; a long list is put into sections.
function settle(block) {
  block.children = block.children.map((child) => {
    if (child.node) return child;
    while (child.children.length === 1 && !child.children[0].node) {
      const inner = child.children[0];
      child = Object.assign(inner, { title: `${child.title}${inner.join}${inner.title}`, parent: block });
    }
    return child;
  });
  for (const child of block.children) {
    child.parent = block;
    if (!child.node) settle(child);
  }
  block.children.sort((a, b) => a.first - b.first);
  if (block.children.length > SECTION) {
    const each = Math.min(SECTION, Math.max(10, Math.ceil(Math.sqrt(block.children.length))));
    const sections = [];
    for (let at = 0; at < block.children.length; at += each) {
      const part = block.children.slice(at, at + each);
      const section = newBlock(`${part[0].title} ... ${part.at(-1).title}`, `${block.path}#${at}`, block);
      section.children = part;
      for (const child of part) child.parent = section;
      measure(section);
      sections.push(section);
    }
    block.children = sections;
    if (sections.length > SECTION) settle(block);
  }
  measure(block);
}

function measure(block) {
  block.count = 0;
  block.kinds = { dml: 0, single: 0, cpu: 0 };
  block.first = Infinity;
  for (const child of block.children) {
    block.first = Math.min(block.first, child.first);
    block.count += child.node ? 1 : child.count;
    if (child.node) block.kinds[child.node.kind] += 1;
    else for (const kind of Object.keys(block.kinds)) block.kinds[kind] += child.kinds[kind];
  }
  block.children.forEach((child, at) => { child.place = at; });
}

// Between which children of which block the edges of the nodes run: edge counts by block, whatever is open.
function liftEdges(root, nodes) {
  const chain = (leaf) => {
    const found = [];
    for (let one = leaf; one; one = one.parent) found.push(one);
    return found.reverse();
  };
  const chains = nodes.map((node) => chain(node.leaf));
  for (const node of nodes) {
    for (const from of node.reads) {
      const [ours, theirs] = [chains[node.at], chains[from]];
      let depth = 0;
      while (ours[depth + 1] && ours[depth + 1] === theirs[depth + 1]) depth += 1;
      const block = ours[depth];
      const [source, target] = [theirs[depth + 1], ours[depth + 1]];
      if (!source || !target) continue;
      block.edges ??= new Map();
      const key = `${source.place} ${target.place}`;
      const edge = block.edges.get(key) || { source, target, count: 0, crosses: false };
      edge.count += 1;
      edge.crosses ||= (nodes[from].kind === 'cpu') !== (node.kind === 'cpu');
      block.edges.set(key, edge);
    }
  }
  return root;
}
