// The list of windows: filters, fifty rows at a time, and search in what they show.

import { ask } from "./api.js";
import { carriedIn, filtersIn, listAddress, rowAddress } from "./address.js";
import { make } from "./dom.js";
import { filterForm, focusFirst, folded, named, selectField, splitChoices, textField } from "./filters.js";
import { listKeys } from "./keys.js";
import { fullName } from "./naming.js";
import { emptyNotice, waitingIn } from "./notices.js";
import { firstIn, pager, range } from "./paging.js";
import { searchField, searchIn } from "./search.js";
import { count, counted, isTold, licenseName, lines, place, printable, printableLines } from "./telling.js";

const ROWS_PER_PAGE = 50;

export function listPage({ dataset, go, announce }) {
  const results = make("section", { class: "results", "aria-label": "Rows" });
  const now = () => carriedIn(new URLSearchParams(window.location.search));
  const filters = filterForm(fields(dataset), (values, isTyped) =>
    go(listAddress({ ...now(), ...values }), { replace: isTyped }));
  // On to the hits: in the field, j and k would be letters.
  const search = searchField(async (values) => {
    await go(listAddress({ ...now(), ...values }));
    results.querySelector("h2.told")?.focus({ preventScroll: true });
  });
  const fold = folded(filters.form);
  let title = "Windows";

  async function update({ query }, signal) {
    filters.set(query);
    search.set(query);
    if (query.get("q")) title = searchIn(results, query, { signal, announce });
    else title = await windowsIn(results, query, { signal, announce });
  }
  return {
    root: make(
      "div", {},
      make("h1", { tabindex: -1 }, "Windows"),
      search.form,
      make("div", { class: "with-filters" }, fold, results),
    ),
    update,
    title: () => title,
    keys: {
      ...listKeys(results, "a.row-link"),
      "/": () => search.focus(),
      f: () => focusFirst(fold, "select"),
    },
  };
}

function fields(dataset) {
  return [
    selectField("split", "Split", splitChoices(dataset)),
    selectField("language", "Language", named(dataset.languages)),
    selectField("license", "Licence", named(dataset.licenses)),
    ...(dataset.variants.length ? [selectField("variant", "Variant", variantChoices(dataset.variants))] : []),
    textField("path", "Path", "Part of a name, or a pattern like */tests/*.py"),
  ];
}

function variantChoices(kinds) {
  const [all, ...each] = named(kinds);
  return [all, ["none", "none: the files themselves"], ...each];
}

async function windowsIn(results, query, { signal, announce }) {
  const from = firstIn(query);
  const filters = filtersIn(query);
  const asked = { ...filters, from, count: ROWS_PER_PAGE };
  const found = await ask("windows", asked, { signal, waiting: waitingIn(results) });
  const isFiltered = Object.keys(filters).length > 0;
  const told = range(from, found.rows.length, found.total, "row");
  announce(told);
  results.replaceChildren(
    make("h2", { class: "told", tabindex: -1 }, told),
    ...(found.rows.length ? listed(found, query) : [nothing(found.total, isFiltered, query)]),
  );
  return isFiltered ? `Windows, filtered: ${told}` : `Windows: ${told}`;
}

function nothing(total, isFiltered, query) {
  if (total) return emptyNotice("There are not so many rows.", listAddress(filtersIn(query)));
  if (isFiltered) return emptyNotice("No window passes these filters.", listAddress());
  return emptyNotice("This dataset has no windows.", null);
}

function listed({ total, from, rows }, query) {
  const carried = carriedIn(query);
  const items = rows.map((row) => rowItem(row, carried));
  return [make("ol", { class: "rows" }, items), pager(total, from, query, ROWS_PER_PAGE, listAddress)];
}

function rowItem({ split, row, num_ids: numIds, windows, text }, carried) {
  const [first] = windows;
  const name = first ? fullName(first) : ["markers only"];
  const more = windows.length > 1 ? ` and ${counted(windows.length - 1, "more window")}` : "";
  const key = place(split, row);
  return make(
    "li", { class: "row" },
    make("p", { class: "row-name" },
      make("a", { class: "row-link", href: rowAddress({ split, row }, carried), "data-key": key }, name),
      make("span", { class: "faint" }, more)),
    make("p", { class: "row-facts" }, rowFacts(key, numIds, windows).map((fact) => make("span", {}, fact))),
    make("pre", { class: "preview" }, withoutBlankLines(printableLines(text))),
  );
}

const withoutBlankLines = (text) => text.replace(/^(\s*\n)+/, "").replace(/\n(\s*\n)+/g, "\n");

function rowFacts(key, numIds, windows) {
  const [first] = windows;
  if (!first) return [key, counted(numIds, "id")];
  const facts = [key, isTold(first) && lines(first.lines), first.language, first.license && licenseName(first.license)];
  const fresh = isTold(first) && windows.length === 1 ? `${count(first.fresh)} fresh of ` : "";
  return [
    ...facts.filter(Boolean).map(printable),
    `${fresh}${counted(numIds, "id")}`,
    ...(first.variant ? [`variant: ${printable(first.variant)}`] : []),
    ...(first.fim ? [`fill in the middle: ${printable(first.fim)}, ${printable(first.middle)}`] : []),
    ...(first.repeat ? [`repeat ${first.repeat}`] : []),
  ];
}
