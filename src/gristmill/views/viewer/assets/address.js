// Addresses of pages. Every state of the viewer has an address.

const FILTERS = ["split", "language", "license", "variant", "path"];
const LIST_FIELDS = [...FILTERS, "q", "case"];

/** Returns the fields with these names that are set, as an object. */
function pick(query, names) {
  return Object.fromEntries(names.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
}

export const getFilters = (query) => pick(query, FILTERS);

/** Returns the filters and the search. Links between a list and its rows keep them. */
export const getListFields = (query) => pick(query, LIST_FIELDS);

export function withQuery(path, values) {
  const set = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(set.map(([name, value]) => [name, String(value)])).toString();
  return query ? `${path}?${query}` : path;
}

export const listAddress = (values = {}) => withQuery("/", values);
export const rowAddress = ({ split, row }, values = {}) => withQuery(`/row/${split}/${row}`, values);
export const fileAddress = ({ repo, path }) => withQuery("/file", { repo, path });
export const droppedAddress = (values = {}) => withQuery("/dropped", values);
