// Draws the charts of a page with plotly, in the light or dark colors of the reader's system.
// Printed charts are always light.
//
// The page contains the chart data with all names escaped. This script creates no HTML.
"use strict";
(() => {
  const { charts, font, looks: schemes } = JSON.parse(document.getElementById("charts").textContent);
  const PATTERNS = ["/", "", ".", "x", "-", "+"];
  const MARKERS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"];
  const MAX_ALL_MARKED = 16;
  const MAX_MARKERS = 8;
  const CURVES_HEIGHT = 340;
  const BAR_HEIGHT = 30;
  const UPRIGHT_HEIGHT = 300;
  const TREEMAP_HEIGHT = 480;
  const PATH_HEIGHT = 26;
  const PRINT_WIDTH = 660;
  const MAX_SINGLE_STEPS = 5;
  const TEXT_MARGIN = 1.22;
  const CONFIG = { displayModeBar: false, responsive: true, typesetMath: false, doubleClick: false };

  const darkScheme = matchMedia("(prefers-color-scheme: dark)");
  const printMedia = matchMedia("print");
  let isPrinting = printMedia.matches;

  const mixColors = (color, ground, share) => {
    const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
    const mix = (at) => Math.round(part(color, at) * share + part(ground, at) * (1 - share));
    return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
  };

  const withOpacity = (color, opacity) => {
    const part = (at) => parseInt(color.slice(at, at + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${opacity})`;
  };

  const axis = (colors, more) => ({
    automargin: true,
    fixedrange: true,
    zeroline: false,
    ticks: "",
    ticklabelstandoff: 6,
    color: colors.soft,
    tickfont: { size: 12, color: colors.ink },
    ...more,
  });

  const valueAxis = (chart, colors) =>
    axis(colors, {
      title: { text: chart.axis, font: { size: 12, color: colors.soft }, standoff: 8 },
      gridcolor: colors.edge,
      ...(hasFewIntegers(chart) ? { dtick: 1 } : { nticks: 5 }),
      rangemode: "tozero",
      ...(chart.is_share ? { tickformat: ".0%" } : { exponentformat: "B", separatethousands: true, tickformat: "" }),
      ...(hasTexts(chart) || chart.totals ? { range: [0, TEXT_MARGIN * largest(chart) || 1] } : {}),
    });

  const labelAxis = (chart, colors) =>
    axis(colors, {
      title: { text: chart.places_axis, font: { size: 12, color: colors.soft }, standoff: 8 },
      showgrid: false,
      tickmode: "array",
      tickvals: chart.ticks ? chart.ticks.map((tick) => tick.at) : chart.labels.map((_, position) => position),
      ticktext: chart.ticks ? chart.ticks.map((tick) => tick.text) : chart.labels,
      // Slightly wider than the bars, because ticks are at the outer edges of the bars.
      ...(chart.is_upright ? { tickangle: 0, range: [-0.6, chart.labels.length - 0.4] } : { autorange: "reversed" }),
    });

  const hasTexts = (chart) => !chart.is_stacked && chart.series.some((series) => series.texts);
  const allValues = (chart) => chart.series.flatMap((series) => series.values);
  const sums = (chart) =>
    chart.labels.map((_, position) => chart.series.reduce((sum, series) => sum + series.values[position], 0));
  const largest = (chart) => Math.max(0, ...(chart.is_stacked ? sums(chart) : allValues(chart)));
  const hasFewIntegers = (chart) =>
    largest(chart) <= MAX_SINGLE_STEPS && !chart.is_share && allValues(chart).every(Number.isInteger);

  // The text beside each stack of bars.
  const totals = (chart, colors) =>
    sums(chart).map((sum, position) => ({
      x: sum,
      y: position,
      text: chart.totals[position],
      xanchor: "left",
      xshift: 4,
      showarrow: false,
      font: { size: 12, color: colors.ink },
    }));

  const marker = (chart, style, colors) => ({
    color: colors.lines[style],
    line: { color: colors.ground, width: 1 },
    pattern: {
      shape: chart.series.length > 1 ? PATTERNS[style] : "",
      fgcolor: colors.ground,
      fillmode: "overlay",
      size: 6,
      solidity: 0.22,
    },
  });

  const barTrace = (chart, series, colors) => {
    const positions = chart.labels.map((_, position) => position);
    return {
      type: "bar",
      name: series.name,
      orientation: chart.is_upright ? "v" : "h",
      x: chart.is_upright ? positions : series.values,
      y: chart.is_upright ? series.values : positions,
      hovertext: series.hints,
      hoverinfo: "text",
      text: hasTexts(chart) ? series.texts : undefined,
      textposition: hasTexts(chart) ? "outside" : "none",
      textfont: { color: colors.ink, size: 12 },
      cliponaxis: false,
      marker: marker(chart, series.style, colors),
    };
  };

  const bars = (chart, colors) => {
    const numBars = chart.labels.length * (chart.is_stacked ? 1 : 0.4 + 0.6 * chart.series.length);
    const legendHeight = chart.series.length > 1 ? 40 : 0;
    const values = valueAxis(chart, colors);
    const positions = labelAxis(chart, colors);
    return {
      data: chart.series.map((series) => barTrace(chart, series, colors)),
      layout: {
        height: chart.is_upright ? UPRIGHT_HEIGHT : 64 + legendHeight + BAR_HEIGHT * Math.max(1.4, numBars),
        barmode: chart.is_stacked ? "stack" : "group",
        bargap: chart.is_upright ? 0.06 : 0.28,
        showlegend: chart.series.length > 1,
        xaxis: chart.is_upright ? positions : values,
        yaxis: chart.is_upright ? values : positions,
        annotations: chart.totals ? totals(chart, colors) : [],
      },
    };
  };

  const funnel = (chart, colors) => ({
    data: [
      {
        type: "funnel",
        x: chart.values,
        y: chart.labels.map((_, position) => position),
        text: chart.texts,
        textinfo: "text",
        textposition: "auto",
        hovertext: chart.hints,
        hoverinfo: "text",
        cliponaxis: false,
        insidetextfont: { color: "#ffffff", size: 13 },
        outsidetextfont: { color: colors.ink, size: 13 },
        marker: { color: schemes.light.lines[1], line: { width: 0 } },
        connector: { fillcolor: mixColors(colors.lines[1], colors.ground, 0.25), line: { width: 0 } },
      },
    ],
    layout: {
      height: 60 + 52 * chart.labels.length,
      funnelgap: 0.25,
      showlegend: false,
      xaxis: axis(colors, { visible: false }),
      yaxis: labelAxis(chart, colors),
    },
  });

  const treemap = (chart, colors) => ({
    data: [
      {
        type: "treemap",
        labels: chart.labels,
        ids: chart.ids,
        parents: chart.parents,
        values: chart.values,
        text: chart.texts,
        textinfo: "label+text",
        hovertext: chart.hints,
        hoverinfo: "text",
        branchvalues: "total",
        maxdepth: 3,
        sort: true,
        textfont: { color: colors.ink, size: 13 },
        tiling: { pad: 2 },
        root: { color: chart.ids.length > 1 ? "rgba(0,0,0,0)" : mixColors(colors.lines[1], colors.ground, 0.38) },
        pathbar: { thickness: PATH_HEIGHT, textfont: { color: colors.ink, size: 13 } },
        marker: { line: { color: colors.ground, width: 1.5 }, pad: { t: 24, l: 4, r: 4, b: 4 } },
      },
    ],
    layout: {
      height: TREEMAP_HEIGHT,
      // The path bar is above the treemap, in the top margin.
      margin: { t: PATH_HEIGHT + 8, r: 24, b: 10, l: 10 },
      uniformtext: { mode: "hide", minsize: 10 },
      treemapcolorway: colors.lines.map((color) => mixColors(color, colors.ground, 0.38)),
      extendtreemapcolors: false,
    },
  });

  const bandTraces = (curve, colors) =>
    curve.bands.map((run) => ({
      type: "scatter",
      mode: "lines",
      x: [...run.map(([x]) => x), ...run.map(([x]) => x).reverse()],
      y: [...run.map(([, , high]) => high), ...run.map(([, low]) => low).reverse()],
      fill: "toself",
      fillcolor: withOpacity(colors.lines[curve.style], 0.16),
      line: { width: 0 },
      hoverinfo: "skip",
      showlegend: false,
    }));

  const curveTrace = (curve, colors) => ({
    type: "scatter",
    mode: curve.is_faint ? "lines" : "lines+markers",
    name: curve.name,
    x: curve.xs,
    y: curve.ys,
    connectgaps: false,
    hovertext: curve.hints,
    hoverinfo: "text",
    showlegend: curve.is_named,
    legendgroup: curve.name,
    opacity: curve.is_faint ? 0.55 : 1,
    line: {
      color: colors.lines[curve.style],
      width: curve.is_faint ? 1.2 : 1.8,
      dash: curve.dash.map((length) => `${length}px`).join(",") || "solid",
    },
    marker: {
      symbol: MARKERS[curve.marker],
      size: 7,
      // A long line has only MAX_MARKERS markers, which is enough to identify it.
      maxdisplayed: curve.xs.length > MAX_ALL_MARKED ? MAX_MARKERS : 0,
    },
  });

  const markShape = (mark, colors) => ({
    type: "line",
    ...(mark.axis === "x"
      ? { x0: mark.at, x1: mark.at, y0: 0, y1: 1, yref: "paper" }
      : { y0: mark.at, y1: mark.at, x0: 0, x1: 1, xref: "paper" }),
    line: { color: colors.soft, width: 1, dash: "3px,3px" },
  });

  // On a log scale, plotly expects log10 of the value as the position of a text, and the value itself for a line.
  const markName = (mark, isLog, colors) => {
    const at = isLog ? Math.log10(mark.at) : mark.at;
    return {
      text: mark.name,
      showarrow: false,
      font: { size: 11, color: colors.soft },
      ...(mark.axis === "x"
        ? { x: at, y: 1, yref: "paper", yanchor: "bottom" }
        : { y: at, x: 0, xref: "paper", xanchor: "left", yanchor: "bottom" }),
    };
  };

  const curves = (chart, colors) => {
    const curveAxis = (title, isLog, more) =>
      axis(colors, {
        title: { text: title, font: { size: 12, color: colors.soft }, standoff: 8 },
        type: isLog ? "log" : "linear",
        gridcolor: colors.edge,
        exponentformat: "B",
        separatethousands: true,
        nticks: 7,
        showticklabels: !chart.is_empty,
        ...more,
      });
    const noData = { text: "no data yet", x: 0.5, xref: "paper", y: 0.5, yref: "paper", showarrow: false };
    return {
      data: [
        ...chart.curves.flatMap((curve) => bandTraces(curve, colors)),
        ...chart.curves.map((curve) => curveTrace(curve, colors)),
      ],
      layout: {
        height: CURVES_HEIGHT,
        margin: { t: 24, r: 24, b: 10, l: 10 },
        showlegend: true,
        legend: { orientation: "h", x: 0, y: 1.08, yanchor: "bottom", font: { size: 12 } },
        xaxis: curveAxis(chart.x_axis, chart.is_log_x, { showgrid: false }),
        yaxis: curveAxis(chart.y_axis, chart.is_log_y, {}),
        shapes: chart.marks.map((mark) => markShape(mark, colors)),
        annotations: chart.is_empty
          ? [noData]
          : chart.marks.map((mark) => markName(mark, mark.axis === "x" ? chart.is_log_x : chart.is_log_y, colors)),
      },
    };
  };

  const KINDS = { bars, funnel, treemap, curves };

  const draw = (id, chart) => {
    const colors = !isPrinting && darkScheme.matches ? schemes.dark : schemes.light;
    const element = document.getElementById(id);
    element.hidden = false;
    const { data, layout } = KINDS[chart.kind](chart, colors);
    return Plotly.react(
      element,
      data,
      {
        autosize: true,
        ...(isPrinting ? { autosize: false, width: PRINT_WIDTH } : {}),
        margin: { t: 10, r: 24, b: 10, l: 10 },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: font, size: 13, color: colors.ink },
        hovermode: "closest",
        hoverlabel: {
          align: "left",
          bgcolor: colors.ground,
          bordercolor: colors.soft,
          font: { color: colors.ink, size: 13 },
        },
        legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal", font: { size: 12 } },
        dragmode: false,
        ...layout,
      },
      CONFIG,
    );
  };

  const drawAll = () => Promise.all(Object.entries(charts).map(([id, chart]) => draw(id, chart)));

  const setPrinting = (shouldPrint) => {
    if (shouldPrint === isPrinting) {
      return;
    }
    isPrinting = shouldPrint;
    // Open all tables of charts for printing. After printing, close the tables that were closed before.
    for (const details of document.querySelectorAll("details.values")) {
      if (shouldPrint) {
        details.dataset.wasOpen = String(details.open);
        details.open = true;
      } else {
        details.open = details.dataset.wasOpen === "true";
      }
    }
    drawAll();
  };

  darkScheme.addEventListener("change", drawAll);
  printMedia.addEventListener("change", (event) => setPrinting(event.matches));
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(false));
  drawAll().then(() => document.documentElement.setAttribute("data-drawn", "yes"));
})();
