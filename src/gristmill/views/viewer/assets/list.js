// The list of windows, with filters, pages of 50 rows, and search in the text.

import { fetchApi } from "./api.js";
import { getFilters, getListFields, listAddress, rowAddress } from "./address.js";
import { make } from "./dom.js";
import { collapsible, filterForm, nameChoices, openAndFocus, selectField, splitChoices, textField } from "./filters.js";
import { fullName } from "./file_name.js";
import { count, counted, hasBuildFacts, licenseName, lines, printable, printableLines, rowId } from "./format.js";
import { listKeys } from "./keys.js";
import { emptyNotice, showWaiting } from "./notices.js";
import { firstItem, pager, rangeText } from "./pager.js";
import { searchField, startSearch } from "./search.js";

const ROWS_PER_PAGE = 50;

export function listPage({ dataset, go, announce }) {
  const results = make("section", { class: "results", "aria-label": "Rows" });
  const currentFields = () => getListFields(new URLSearchParams(window.location.search));
  const filters = filterForm(fields(dataset), (values, isTyped) =>
    go(listAddress({ ...currentFields(), ...values }), { replace: isTyped }));
  // The focus moves to the hits. Otherwise j and k would be typed into the search field.
  const search = searchField(async (values) => {
    await go(listAddress({ ...currentFields(), ...values }));
    results.querySelector("h2.subheading")?.focus({ preventScroll: true });
  });
  const details = collapsible(filters.form);
  let title = "Windows";

  async function update({ query }, signal) {
    filters.set(query);
    search.set(query);
    if (query.get("q")) title = startSearch(results, query, { signal, announce });
    else title = await showWindows(results, query, { signal, announce });
  }
  return {
    root: make(
      "div", {},
      make("h1", { tabindex: -1 }, "Windows"),
      search.form,
      make("div", { class: "with-filters" }, details, results),
    ),
    update,
    title: () => title,
    keys: {
      ...listKeys(results, "a.row-link"),
      "/": () => search.focus(),
      f: () => openAndFocus(details, "select"),
    },
  };
}

function fields(dataset) {
  return [
    selectField("split", "Split", splitChoices(dataset)),
    selectField("language", "Language", nameChoices(dataset.languages)),
    selectField("license", "License", nameChoices(dataset.licenses)),
    ...(dataset.variants.length ? [selectField("variant", "Variant", variantChoices(dataset.variants))] : []),
    textField("path", "Path", "Part of the path, or a pattern like */tests/*.py"),
  ];
}

function variantChoices(kinds) {
  const [all, ...each] = nameChoices(kinds);
  return [all, ["none", "none (original files)"], ...each];
}

async function showWindows(results, query, { signal, announce }) {
  const from = firstItem(query);
  const filters = getFilters(query);
  const values = { ...filters, from, count: ROWS_PER_PAGE };
  const found = await fetchApi("windows", values, { signal, onWaiting: showWaiting(results) });
  const isFiltered = Object.keys(filters).length > 0;
  const summary = rangeText(from, found.rows.length, found.total, "row");
  announce(summary);
  results.replaceChildren(
    make("h2", { class: "subheading", tabindex: -1 }, summary),
    ...(found.rows.length ? rowList(found, query) : [noRowsNotice(found.total, isFiltered, query)]),
  );
  return isFiltered ? `Windows, filtered: ${summary}` : `Windows: ${summary}`;
}

function noRowsNotice(total, isFiltered, query) {
  if (total) return emptyNotice("This page is after the last row.", listAddress(getFilters(query)), "First page");
  if (isFiltered) return emptyNotice("No windows match these filters.", listAddress());
  return emptyNotice("This dataset has no windows.", null);
}

function rowList({ total, from, rows }, query) {
  const listFields = getListFields(query);
  const items = rows.map((row) => rowItem(row, listFields));
  return [make("ol", { class: "rows" }, items), pager(total, from, query, ROWS_PER_PAGE, listAddress)];
}

function rowItem({ split, row, num_ids: numIds, windows, text }, listFields) {
  const [first] = windows;
  const name = first ? fullName(first) : ["special tokens only"];
  const more = windows.length > 1 ? ` and ${counted(windows.length - 1, "more window")}` : "";
  const key = rowId(split, row);
  return make(
    "li", { class: "row" },
    make("p", { class: "row-name" },
      make("a", { class: "row-link", href: rowAddress({ split, row }, listFields), "data-key": key }, name),
      make("span", { class: "faint" }, more)),
    make("p", { class: "row-facts" }, rowFacts(key, numIds, windows).map((fact) => make("span", {}, fact))),
    make("pre", { class: "preview" }, withoutBlankLines(printableLines(text))),
  );
}

const withoutBlankLines = (text) => text.replace(/^(\s*\n)+/, "").replace(/\n(\s*\n)+/g, "\n");

function rowFacts(key, numIds, windows) {
  const [first] = windows;
  if (!first) return [key, counted(numIds, "id")];
  const hasFacts = hasBuildFacts(first);
  const facts = [key, hasFacts && lines(first.lines), first.language, first.license && licenseName(first.license)];
  const fresh = hasFacts && windows.length === 1 ? `, ${count(first.fresh)} fresh` : "";
  return [
    ...facts.filter(Boolean).map(printable),
    `${counted(numIds, "id")}${fresh}`,
    ...(first.variant ? [`variant: ${printable(first.variant)}`] : []),
    ...(first.fim ? [`fill-in-the-middle: ${printable(first.fim)}, ${printable(first.middle)}`] : []),
    ...(first.repeat ? [`repeat ${first.repeat}`] : []),
  ];
}
