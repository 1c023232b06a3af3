// Files that are not in the dataset: why, in numbers, and one by one.

import { ask } from "./api.js";
import { droppedAddress, fileAddress } from "./address.js";
import { make } from "./dom.js";
import { filterForm, focusFirst, folded, selectField, textField } from "./filters.js";
import { listKeys } from "./keys.js";
import { fullName } from "./naming.js";
import { emptyNotice, waitingIn } from "./notices.js";
import { firstIn, pager, range } from "./paging.js";
import { bytes, count, counted, printable } from "./telling.js";

const FILES_PER_PAGE = 100;
const HEADS = ["File", "Reason", "Here", "Language", "Size"];

export function droppedPage({ dataset, go, announce }) {
  const results = make("section", { class: "results", "aria-label": "Files" });
  const filters = filterForm(fields(dataset), (values, isTyped) => go(droppedAddress(values), { replace: isTyped }));
  const fold = folded(filters.form);
  const found = dataset.kept + dataset.dropped;
  let title = "Dropped files";

  async function update({ query }, signal) {
    filters.set(query);
    const told = await filesIn(results, query, dataset, signal);
    announce(told);
    title = `Dropped files: ${told}`;
  }
  return {
    root: make(
      "div", {},
      make("h1", { tabindex: -1 }, "Dropped files"),
      make("p", { class: "faint" }, `Not in the dataset: ${count(dataset.dropped)} of ${counted(found, "file")}.`),
      make("div", { class: "with-filters" }, fold, results),
    ),
    update,
    title: () => title,
    keys: {
      ...listKeys(results, "a.row-link"),
      f: () => focusFirst(fold, "select"),
      "/": () => focusFirst(fold, "input"),
    },
  };
}

function fields(dataset) {
  const reasons = dataset.reasons.map(({ reason, files }) => [reason, `${reason} (${count(files)})`]);
  return [
    selectField("reason", "Reason", [["", `all (${count(dataset.dropped)})`], ...reasons]),
    textField("path", "Path", "Part of a name, or a pattern like */tests/*.py"),
  ];
}

async function filesIn(results, query, dataset, signal) {
  const from = firstIn(query);
  const asked = { status: "dropped", from, count: FILES_PER_PAGE };
  for (const name of ["reason", "path"]) if (query.get(name)) asked[name] = query.get(name);
  const { total, files } = await ask("files", asked, { signal, waiting: waitingIn(results) });
  const told = range(from, files.length, total, "file");
  results.replaceChildren(
    make("h2", { class: "told", tabindex: -1 }, told),
    ...explained(query.get("reason"), dataset.reasons),
    files.length ? filesTable(files) : nothing(asked),
    pager(total, from, query, FILES_PER_PAGE, droppedAddress),
  );
  return told;
}

function nothing({ reason, path }) {
  if (reason || path) return emptyNotice("No dropped file is like this.", droppedAddress());
  return emptyNotice("No file was dropped.", null);
}

/** What a reason means; all of them where none is chosen. */
function explained(chosen, reasons) {
  const known = reasons.find(({ reason }) => reason === chosen);
  if (known) return [make("p", {}, make("strong", {}, known.reason), `: ${printable(known.told)}.`)];
  if (!reasons.length) return [];
  const items = reasons.map(({ reason, told, files }) => {
    const link = make("a", { href: droppedAddress({ reason }) }, reason);
    return make("div", {}, make("dt", {}, link, ` ${count(files)}`), make("dd", {}, printable(told)));
  });
  return [make("details", { class: "reasons" }, make("summary", {}, "What the reasons mean"), make("dl", {}, items))];
}

function filesTable(files) {
  return make(
    "div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": "Dropped files" },
    make("table", { class: "files" },
      make("thead", {}, make("tr", {}, HEADS.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, files.map(fileRow))),
  );
}

function fileRow(file) {
  const cells = [file.reason, here(file), file.language && printable(file.language), bytes(file.bytes)];
  const key = `${file.repo}/${file.path}`;
  return make(
    "tr", {},
    make("th", { scope: "row" },
      make("a", { class: "row-link", href: fileAddress(file), "data-key": key }, fullName(file))),
    cells.map((cell, column) =>
      make("td", { "data-head": HEADS[column + 1], class: cellClass(cell, column) }, cell ?? "")),
  );
}

function cellClass(cell, column) {
  if (!cell) return "absent";
  return column ? null : "reason";
}

/** What was found in it, with its twin if that is not in those words already. */
function here({ detail, twin }) {
  const isTold = !twin || detail?.includes(twin);
  return printable([detail, isTold ? null : `like ${twin}`].filter(Boolean).join("; "));
}
