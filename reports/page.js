// The page of one run: commands are copied, the matrix of nodes is sorted, and a node shows its findings.
"use strict";
function copy(button) {
  const text = button.previousElementSibling.textContent;
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");  // at once, and on a page from a file, too
  area.remove();
  if (copied) { button.textContent = "copied"; return; }
  const byHand = () => {
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = "selected";
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => { button.textContent = "copied"; }, byHand);
  else byHand();
}
function sortMatrix(button) {
  const head = button.closest("th"), table = button.closest("table"), column = head.cellIndex;
  const down = head.getAttribute("aria-sort") !== "descending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const weight = { f: 3, u: 2, p: 1, n: 0 };
  const value = (row) => column ? weight[row.cells[column].className] : row.cells[0].textContent;
  const compare = (a, b) => typeof a === "string" ? b.localeCompare(a, "en", { numeric: true }) : b - a;
  const body = table.tBodies[0];
  for (const opened of body.querySelectorAll(".opened")) opened.remove();
  const rows = [...body.rows].sort((a, b) => (down ? 1 : -1) * compare(value(a), value(b)));
  body.append(...rows);
  for (const each of body.querySelectorAll("[aria-expanded]")) each.setAttribute("aria-expanded", "false");
}
function openNode(button) {
  const row = button.closest("tr"), next = row.nextElementSibling;
  if (next && next.className === "opened") { next.remove(); button.setAttribute("aria-expanded", "false"); return; }
  const opened = document.createElement("tr");
  opened.className = "opened";
  const cell = opened.insertCell();
  cell.colSpan = row.cells.length;
  cell.append(document.getElementById(button.dataset.node).content.cloneNode(true));
  row.after(opened);
  button.setAttribute("aria-expanded", "true");
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-does]");
  if (button) ({ copy, sort: sortMatrix, open: openNode })[button.dataset.does](button);
});
