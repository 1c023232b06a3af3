// The list of dropped files, with the reason for each.

import { fetchApi } from "./api.js";
import { droppedAddress, fileAddress } from "./address.js";
import { make } from "./dom.js";
import { collapsible, filterForm, openAndFocus, selectField, textField } from "./filters.js";
import { fullName } from "./file_name.js";
import { bytes, count, counted, printable } from "./format.js";
import { listKeys } from "./keys.js";
import { emptyNotice, showWaiting } from "./notices.js";
import { firstItem, pager, rangeText } from "./pager.js";

const FILES_PER_PAGE = 100;
const HEADS = ["File", "Reason", "Details", "Language", "Size"];

export function droppedPage({ dataset, go, announce }) {
  const results = make("section", { class: "results", "aria-label": "Files" });
  const filters = filterForm(fields(dataset), (values, isTyped) => go(droppedAddress(values), { replace: isTyped }));
  const details = collapsible(filters.form);
  const numFiles = dataset.kept + dataset.dropped;
  let title = "Dropped files";

  async function update({ query }, signal) {
    filters.set(query);
    const summary = await showFiles(results, query, dataset, signal);
    announce(summary);
    title = `Dropped files: ${summary}`;
  }
  return {
    root: make(
      "div", {},
      make("h1", { tabindex: -1 }, "Dropped files"),
      make("p", { class: "faint" }, `Not in the dataset: ${count(dataset.dropped)} of ${counted(numFiles, "file")}.`),
      make("div", { class: "with-filters" }, details, results),
    ),
    update,
    title: () => title,
    keys: {
      ...listKeys(results, "a.row-link"),
      f: () => openAndFocus(details, "select"),
      "/": () => openAndFocus(details, "input"),
    },
  };
}

function fields(dataset) {
  const reasons = dataset.reasons.map(({ reason, files }) => [reason, `${reason} (${count(files)})`]);
  return [
    selectField("reason", "Reason", [["", `all (${count(dataset.dropped)})`], ...reasons]),
    textField("path", "Path", "Part of the path, or a pattern like */tests/*.py"),
  ];
}

async function showFiles(results, query, dataset, signal) {
  const from = firstItem(query);
  const values = { status: "dropped", from, count: FILES_PER_PAGE };
  for (const name of ["reason", "path"]) if (query.get(name)) values[name] = query.get(name);
  const { total, files } = await fetchApi("files", values, { signal, onWaiting: showWaiting(results) });
  const summary = rangeText(from, files.length, total, "file");
  results.replaceChildren(
    make("h2", { class: "subheading", tabindex: -1 }, summary),
    ...reasonTexts(query.get("reason"), dataset.reasons),
    files.length ? filesTable(files) : noFilesNotice(values),
    pager(total, from, query, FILES_PER_PAGE, droppedAddress),
  );
  return summary;
}

function noFilesNotice({ reason, path }) {
  if (reason || path) return emptyNotice("No dropped files match these filters.", droppedAddress());
  return emptyNotice("No files were dropped.", null);
}

/** Explains the selected reason, or all reasons if none is selected. */
function reasonTexts(selectedName, reasons) {
  const selected = reasons.find(({ reason }) => reason === selectedName);
  if (selected) return [make("p", {}, make("strong", {}, selected.reason), `: ${printable(selected.meaning)}.`)];
  if (!reasons.length) return [];
  const items = reasons.map(({ reason, meaning, files }) => {
    const link = make("a", { href: droppedAddress({ reason }) }, reason);
    return make("div", {}, make("dt", {}, link, ` ${count(files)}`), make("dd", {}, printable(meaning)));
  });
  return [make("details", { class: "reasons" }, make("summary", {}, "Meaning of the reasons"), make("dl", {}, items))];
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
  const cells = [file.reason, detailText(file), file.language && printable(file.language), bytes(file.bytes)];
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

/** Returns the detail of the drop reason, followed by the duplicate that was kept if the detail does not name it. */
function detailText({ detail, twin }) {
  const isNamed = !twin || detail?.includes(twin);
  return printable([detail, isNamed ? null : `duplicate of ${twin}`].filter(Boolean).join("; "));
}
