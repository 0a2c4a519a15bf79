// Every page: commands are copied, nodes are sorted, filtered and opened, and the cells of a picture are read out.
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
function filterNodes(input) {
  const table = input.closest("section").querySelector(".matrix"), asked = input.value.trim().toLowerCase();
  const fits = (element) => element.id.slice("node/".length).toLowerCase().includes(asked);
  for (const opened of table.querySelectorAll(".opened")) opened.remove();
  for (const row of table.tBodies[0].rows) row.hidden = !fits(row);
  for (const group of table.tBodies[1].rows) {
    let any = false;
    for (const item of group.querySelectorAll("li[id]")) { item.hidden = !fits(item); any ||= !item.hidden; }
    group.hidden = !any;
    group.querySelector("details").open = asked !== "";
  }
}
function follow() {  // a node of the address shows its findings, too
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!place) return;
  for (let each = place; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  const button = place.querySelector("button[data-does=open][aria-expanded=false]");
  if (button) openNode(button);
  place.scrollIntoView();
}
function read(region, cell) {
  for (const before of region.querySelectorAll(".read")) before.classList.remove("read");
  cell.classList.add("read");
  region.nextElementSibling.textContent = cell.querySelector("title").textContent;
}
function nextCell(region, key) {  // the nearest one in the direction of an arrow
  const cells = [...region.querySelectorAll("rect:has(title)")], now = region.querySelector(".read");
  if (!now) return cells[0];
  const place = (cell) => [cell.x.baseVal.value, cell.y.baseVal.value], [x, y] = place(now);
  const along = key === "ArrowLeft" || key === "ArrowRight" ? 0 : 1, back = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
  let nearest = now, least = Infinity;
  for (const cell of cells) {
    const away = [place(cell)[0] - x, place(cell)[1] - y], far = back * away[along] + 8 * Math.abs(away[1 - along]);
    if (back * away[along] > 0 && far < least) { nearest = cell; least = far; }
  }
  return nearest;
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-does]");
  if (button) ({ copy, sort: sortMatrix, open: openNode })[button.dataset.does](button);
});
document.addEventListener("input", (event) => { if (event.target.dataset.does === "filter") filterNodes(event.target); });
document.addEventListener("pointerover", (event) => {
  const cell = event.target.closest("[data-does=read] rect:has(title)");
  if (cell) read(cell.closest("[data-does=read]"), cell);
});
document.addEventListener("keydown", (event) => {
  const region = event.target.closest("[data-does=read]");
  if (!region || !/^Arrow/.test(event.key)) return;
  const cell = nextCell(region, event.key);
  if (!cell) return;
  event.preventDefault();
  read(region, cell);
  cell.scrollIntoView({ block: "nearest", inline: "nearest" });
});
addEventListener("hashchange", follow);
follow();
