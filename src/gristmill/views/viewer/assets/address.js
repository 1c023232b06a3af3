// Every state of the viewer is an address: here they are written and read.

const FILTERS = ["split", "language", "license", "variant", "path"];
const CARRIED = [...FILTERS, "q", "case"];

/** The named ones that are set, as an object. */
function picked(query, names) {
  return Object.fromEntries(names.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
}

export const filtersIn = (query) => picked(query, FILTERS);

/** What goes along from a list to its rows and back. */
export const carriedIn = (query) => picked(query, CARRIED);

export function withQuery(path, values) {
  const set = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(set.map(([name, value]) => [name, String(value)])).toString();
  return query ? `${path}?${query}` : path;
}

export const listAddress = (values = {}) => withQuery("/", values);
export const rowAddress = ({ split, row }, values = {}) => withQuery(`/row/${split}/${row}`, values);
export const fileAddress = ({ repo, path }) => withQuery("/file", { repo, path });
export const droppedAddress = (values = {}) => withQuery("/dropped", values);
