// The page: its theme, its ribbons, its graph, and all of it opened for print.

document.documentElement.classList.add('js');
document.body.append(tip);
const data = JSON.parse(document.getElementById('nodes').textContent);
const tables = (data.tables ?? []).map(readTable);
const graph = tables.length && document.getElementById('graph') ? readyGraph(tables, data.start) : null;

for (const ribbon of document.querySelectorAll('.ribbon')) {
  const which = Number(ribbon.dataset.table);
  if (!tables[which]) continue;
  readyRibbon(ribbon, tables[which], (node) => graph?.openNode(which, node));
  readyModules(ribbon, tables[which], (block) => graph?.openBlock(which, block));
}

const dark = matchMedia('(prefers-color-scheme: dark)');
const theme = document.getElementById('theme');
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light')) === 'dark';
const nameTheme = () => {
  theme.textContent = isDark() ? 'Light' : 'Dark';
  graph?.recolour();
};
theme.hidden = false;
theme.addEventListener('click', () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  nameTheme();
});
dark.addEventListener('change', nameTheme);
nameTheme();

let closed = [];
addEventListener('beforeprint', () => {
  closed = [...document.querySelectorAll('details:not([open])')];
  for (const one of closed) one.open = true;
  graph?.recolour();
});
addEventListener('afterprint', () => {
  for (const one of closed) one.open = false;
  graph?.recolour();
});
