// The index of a fleet: its theme, rows that are sorted by a click on a heading, and filtered by verdict and text.

document.documentElement.classList.add('js');
const table = document.getElementById('jobs');
const body = table.tBodies[0];
const rows = [...body.rows];
const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
const buttons = [...document.querySelectorAll('#tools button')];
const search = document.getElementById('search');
const shown = document.getElementById('shown');
let word = '';

const show = () => {
  const text = search.value.trim().toLowerCase();
  let count = 0;
  for (const row of rows) {
    row.hidden = (word !== '' && row.dataset.word !== word) || !texts.get(row).includes(text);
    count += row.hidden ? 0 : 1;
  }
  for (const button of buttons) button.setAttribute('aria-pressed', String(button.dataset.word === word));
  shown.textContent = count === rows.length ? '' : `${count} of ${rows.length} jobs`;
};
for (const button of buttons) {
  button.addEventListener('click', () => {
    word = button.dataset.word;
    show();
  });
}
search.addEventListener('input', show);
document.getElementById('tools').hidden = false;

// A number where the cell holds one, else its text; cells without a value come last.
const valueOf = (cell) => {
  const given = cell.dataset.value ?? cell.textContent.trim();
  return given === '' ? null : cell.dataset.value === undefined ? given.toLowerCase() : Number(given);
};
const sortBy = (column, down) => {
  const sign = down ? -1 : 1;
  const values = new Map(rows.map((row) => [row, valueOf(row.cells[column])]));
  rows.sort((a, b) => {
    const [one, other] = [values.get(a), values.get(b)];
    if (one === null || other === null) return (one === null) - (other === null);
    return one < other ? -sign : one > other ? sign : 0;
  });
  body.append(...rows);
};
const headings = [...table.tHead.rows[0].cells];
headings.forEach((heading, column) => {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'sort';
  button.textContent = heading.textContent;
  heading.replaceChildren(button);
  button.addEventListener('click', () => {
    const down = heading.getAttribute('aria-sort') === 'ascending';
    for (const other of headings) other.removeAttribute('aria-sort');
    heading.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    sortBy(column, down);
  });
});

const dark = matchMedia('(prefers-color-scheme: dark)');
const theme = document.getElementById('theme');
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light')) === 'dark';
const nameTheme = () => {
  theme.textContent = isDark() ? 'Light' : 'Dark';
};
theme.hidden = false;
theme.addEventListener('click', () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  nameTheme();
});
dark.addEventListener('change', nameTheme);
nameTheme();
