// A layered layout of what is open: each block is laid out by itself, an open one stands in its parent as a large box.
//
// Layers: each child stands below what it reads (longest path). Edges that lead back to an earlier child, which blocks
// can have and nodes cannot, take no part. Order: sweeps by the mean place of neighbours. Places: children are drawn
// towards their neighbours, and pushed apart. An edge over several layers has a waypoint in each, so that it passes
// between the boxes (after Sugiyama, Tagawa and Toda, 1981).

const GAP = { x: 22, y: 34, title: 26, edge: 14 };
const WAYPOINTS = 3000;

function layOut(block, measureText) {
  for (const child of block.children) {
    if (child.node || !child.open) {
      const label = child.node ? child.node.operator : `${child.title}${child.count}${child.kinds.cpu ? `, ${child.kinds.cpu} on CPU` : ''}`;
      child.width = child.node ? Math.max(74, Math.min(220, measureText(label) + 26)) : Math.max(130, Math.min(320, measureText(label) + 46));
      child.height = child.node ? 30 : 46;
    } else {
      layOut(child, measureText);
    }
  }
  const edges = [...(block.edges?.values() ?? [])];
  const forward = edges.filter((edge) => edge.source.first < edge.target.first && edge.source !== edge.target);
  const layers = intoLayers(block.children, forward);
  const routes = addWaypoints(layers, forward);
  order(layers);
  const width = place(layers);
  let y = GAP.title;
  for (const layer of layers) {
    const height = Math.max(...layer.map((item) => item.height));
    for (const item of layer) item.y = y + (height - item.height) / 2;
    y += height + GAP.y;
  }
  block.routes = edges
    .filter((edge) => edge.source !== edge.target)
    .map((edge) => ({ ...edge, via: routes.get(edge) ?? [], back: !forward.includes(edge) }));
  block.width = Math.max(140, width + 2 * GAP.x);
  const shift = (block.width - width) / 2;
  for (const layer of layers) for (const item of layer) item.x += shift;
  block.height = y - GAP.y + GAP.x;
}

function intoLayers(children, forward) {
  const above = new Map(children.map((child) => [child, []]));
  for (const edge of forward) above.get(edge.target).push(edge.source);
  const level = new Map();
  for (const child of [...children].sort((a, b) => a.first - b.first)) {
    level.set(child, Math.max(-1, ...above.get(child).map((one) => level.get(one) ?? -1)) + 1);
  }
  const alone = children.filter((child) => !above.get(child).length && !forward.some((edge) => edge.source === child));
  if (alone.length === children.length) return inRows(children);
  const layers = [];
  for (const child of children) {
    child.links = { up: [], down: [] };
    (layers[level.get(child)] ??= []).push(child);
  }
  return layers;
}

// Children that read nothing of each other.
function inRows(children) {
  const each = Math.ceil(Math.sqrt(children.length));
  const rows = [];
  children.forEach((child, at) => {
    child.links = { up: [], down: [] };
    (rows[Math.floor(at / each)] ??= []).push(child);
  });
  return rows.length ? rows : [[]].filter((row) => row.length);
}

function addWaypoints(layers, forward) {
  const at = new Map();
  layers.forEach((layer, index) => layer.forEach((child) => at.set(child, index)));
  const routes = new Map();
  let made = 0;
  for (const edge of forward) {
    const [top, bottom] = [at.get(edge.source), at.get(edge.target)];
    const via = [];
    if (made + bottom - top < WAYPOINTS) {
      for (let index = top + 1; index < bottom; index += 1) {
        const point = { waypoint: true, width: GAP.edge, height: 0, links: { up: [], down: [] } };
        layers[index].push(point);
        via.push(point);
      }
      made += via.length;
    }
    const stops = [edge.source, ...via, edge.target];
    for (let index = 1; index < stops.length; index += 1) {
      stops[index - 1].links.down.push(stops[index]);
      stops[index].links.up.push(stops[index - 1]);
    }
    routes.set(edge, via);
  }
  return routes;
}

function order(layers) {
  const number = () => layers.forEach((layer) => layer.forEach((item, at) => { item.rank = at; }));
  number();
  for (let sweep = 0; sweep < 8; sweep += 1) {
    const [side, run] = sweep % 2 ? ['down', [...layers].reverse()] : ['up', layers];
    for (const layer of run) {
      for (const item of layer) {
        const near = item.links[side];
        item.wish = near.length ? near.reduce((sum, one) => sum + one.rank, 0) / near.length : item.rank;
      }
      layer.sort((a, b) => a.wish - b.wish || a.rank - b.rank);
      layer.forEach((item, at) => { item.rank = at; });
    }
  }
}

function place(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const item of layer) {
      item.x = x;
      x += item.width + GAP.x;
    }
  }
  const middle = (item) => item.x + item.width / 2;
  for (let sweep = 0; sweep < 12; sweep += 1) {
    const [side, run] = sweep % 2 ? ['down', [...layers].reverse()] : ['up', layers];
    for (const layer of run) {
      const wishes = layer.map((item) => {
        const near = item.links[side];
        return near.length ? near.reduce((sum, one) => sum + middle(one), 0) / near.length - item.width / 2 : item.x;
      });
      settleRow(layer, wishes);
    }
  }
  const left = Math.min(0, ...layers.flat().map((item) => item.x));
  let width = 0;
  for (const item of layers.flat()) {
    item.x -= left;
    width = Math.max(width, item.x + item.width);
  }
  return width;
}

// Places as near to the wishes as the widths allow: pushed right, then pushed left, and the mean of both.
function settleRow(layer, wishes) {
  const right = [];
  layer.forEach((item, at) => {
    right[at] = at ? Math.max(wishes[at], right[at - 1] + layer[at - 1].width + GAP.x) : wishes[at];
  });
  const left = [];
  for (let at = layer.length - 1; at >= 0; at -= 1) {
    left[at] = at < layer.length - 1 ? Math.min(wishes[at], left[at + 1] - layer[at].width - GAP.x) : wishes[at];
  }
  layer.forEach((item, at) => { item.x = (right[at] + left[at]) / 2; });
}
