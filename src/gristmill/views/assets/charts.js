// Draws the charts of a page with plotly, in the colours of the reader's scheme; on paper in those for light ground.
//
// What a chart shows comes as data from the page, with every name escaped already: nothing here makes HTML.
"use strict";
(() => {
  const { charts, font, looks } = JSON.parse(document.getElementById("charts").textContent);
  const PATTERNS = ["/", "", ".", "x", "-", "+"];
  const MARKERS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"];
  const ALL_MARKED = 16;
  const MARKED = 8;
  const CURVES_HEIGHT = 340;
  const BAR_HEIGHT = 30;
  const UPRIGHT_HEIGHT = 300;
  const TREEMAP_HEIGHT = 480;
  const PATH_HEIGHT = 26;
  const PAPER_WIDTH = 660;
  const FEW = 5;
  const ROOM_FOR_TEXT = 1.22;
  const CONFIG = { displayModeBar: false, responsive: true, typesetMath: false, doubleClick: false };

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  let isPrinting = paper.matches;

  const mixed = (colour, ground, share) => {
    const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
    const mix = (at) => Math.round(part(colour, at) * share + part(ground, at) * (1 - share));
    return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
  };

  const faded = (colour, opacity) => {
    const part = (at) => parseInt(colour.slice(at, at + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${opacity})`;
  };

  const axis = (look, more) => ({
    automargin: true,
    fixedrange: true,
    zeroline: false,
    ticks: "",
    ticklabelstandoff: 6,
    color: look.soft,
    tickfont: { size: 12, color: look.ink },
    ...more,
  });

  const valueAxis = (chart, look) =>
    axis(look, {
      title: { text: chart.axis, font: { size: 12, color: look.soft }, standoff: 8 },
      gridcolor: look.edge,
      ...(isFewWhole(chart) ? { dtick: 1 } : { nticks: 5 }),
      rangemode: "tozero",
      ...(chart.is_share ? { tickformat: ".0%" } : { exponentformat: "B", separatethousands: true, tickformat: "" }),
      ...(hasTexts(chart) || chart.totals ? { range: [0, ROOM_FOR_TEXT * largest(chart) || 1] } : {}),
    });

  const placesAxis = (chart, look) =>
    axis(look, {
      title: { text: chart.places_axis, font: { size: 12, color: look.soft }, standoff: 8 },
      showgrid: false,
      tickmode: "array",
      tickvals: chart.ticks ? chart.ticks.map((tick) => tick.at) : chart.labels.map((_, place) => place),
      ticktext: chart.ticks ? chart.ticks.map((tick) => tick.text) : chart.labels,
      // Little more than the bars, as ticks stand at their outer edges.
      ...(chart.is_upright ? { tickangle: 0, range: [-0.6, chart.labels.length - 0.4] } : { autorange: "reversed" }),
    });

  const hasTexts = (chart) => !chart.is_stacked && chart.series.some((series) => series.texts);
  const allValues = (chart) => chart.series.flatMap((series) => series.values);
  const sums = (chart) =>
    chart.labels.map((_, place) => chart.series.reduce((sum, series) => sum + series.values[place], 0));
  const largest = (chart) => Math.max(0, ...(chart.is_stacked ? sums(chart) : allValues(chart)));
  const isFewWhole = (chart) => largest(chart) <= FEW && !chart.is_share && allValues(chart).every(Number.isInteger);

  // Beside a stack of bars, what it is in all.
  const totals = (chart, look) =>
    sums(chart).map((sum, place) => ({
      x: sum,
      y: place,
      text: chart.totals[place],
      xanchor: "left",
      xshift: 4,
      showarrow: false,
      font: { size: 12, color: look.ink },
    }));

  const marker = (chart, style, look) => ({
    color: look.lines[style],
    line: { color: look.ground, width: 1 },
    pattern: {
      shape: chart.series.length > 1 ? PATTERNS[style] : "",
      fgcolor: look.ground,
      fillmode: "overlay",
      size: 6,
      solidity: 0.22,
    },
  });

  const barTrace = (chart, series, look) => {
    const places = chart.labels.map((_, place) => place);
    return {
      type: "bar",
      name: series.name,
      orientation: chart.is_upright ? "v" : "h",
      x: chart.is_upright ? places : series.values,
      y: chart.is_upright ? series.values : places,
      hovertext: series.hints,
      hoverinfo: "text",
      text: hasTexts(chart) ? series.texts : undefined,
      textposition: hasTexts(chart) ? "outside" : "none",
      textfont: { color: look.ink, size: 12 },
      cliponaxis: false,
      marker: marker(chart, series.style, look),
    };
  };

  const bars = (chart, look) => {
    const numBars = chart.labels.length * (chart.is_stacked ? 1 : 0.4 + 0.6 * chart.series.length);
    const legendHeight = chart.series.length > 1 ? 40 : 0;
    const values = valueAxis(chart, look);
    const places = placesAxis(chart, look);
    return {
      data: chart.series.map((series) => barTrace(chart, series, look)),
      layout: {
        height: chart.is_upright ? UPRIGHT_HEIGHT : 64 + legendHeight + BAR_HEIGHT * Math.max(1.4, numBars),
        barmode: chart.is_stacked ? "stack" : "group",
        bargap: chart.is_upright ? 0.06 : 0.28,
        showlegend: chart.series.length > 1,
        xaxis: chart.is_upright ? places : values,
        yaxis: chart.is_upright ? values : places,
        annotations: chart.totals ? totals(chart, look) : [],
      },
    };
  };

  const funnel = (chart, look) => ({
    data: [
      {
        type: "funnel",
        x: chart.values,
        y: chart.labels.map((_, place) => place),
        text: chart.texts,
        textinfo: "text",
        textposition: "auto",
        hovertext: chart.hints,
        hoverinfo: "text",
        cliponaxis: false,
        insidetextfont: { color: "#ffffff", size: 13 },
        outsidetextfont: { color: look.ink, size: 13 },
        marker: { color: looks.light.lines[1], line: { width: 0 } },
        connector: { fillcolor: mixed(look.lines[1], look.ground, 0.25), line: { width: 0 } },
      },
    ],
    layout: {
      height: 60 + 52 * chart.labels.length,
      funnelgap: 0.25,
      showlegend: false,
      xaxis: axis(look, { visible: false }),
      yaxis: placesAxis(chart, look),
    },
  });

  const treemap = (chart, look) => ({
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
        textfont: { color: look.ink, size: 13 },
        tiling: { pad: 2 },
        root: { color: chart.ids.length > 1 ? "rgba(0,0,0,0)" : mixed(look.lines[1], look.ground, 0.38) },
        pathbar: { thickness: PATH_HEIGHT, textfont: { color: look.ink, size: 13 } },
        marker: { line: { color: look.ground, width: 1.5 }, pad: { t: 24, l: 4, r: 4, b: 4 } },
      },
    ],
    layout: {
      height: TREEMAP_HEIGHT,
      // The line that leads back is drawn above the drawing, in its margin.
      margin: { t: PATH_HEIGHT + 8, r: 24, b: 10, l: 10 },
      uniformtext: { mode: "hide", minsize: 10 },
      treemapcolorway: look.lines.map((colour) => mixed(colour, look.ground, 0.38)),
      extendtreemapcolors: false,
    },
  });

  const bandTraces = (curve, look) =>
    curve.bands.map((run) => ({
      type: "scatter",
      mode: "lines",
      x: [...run.map(([x]) => x), ...run.map(([x]) => x).reverse()],
      y: [...run.map(([, , high]) => high), ...run.map(([, low]) => low).reverse()],
      fill: "toself",
      fillcolor: faded(look.lines[curve.style], 0.16),
      line: { width: 0 },
      hoverinfo: "skip",
      showlegend: false,
    }));

  const curveTrace = (curve, look) => ({
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
      color: look.lines[curve.style],
      width: curve.is_faint ? 1.2 : 1.8,
      dash: curve.dash.map((length) => `${length}px`).join(",") || "solid",
    },
    marker: {
      symbol: MARKERS[curve.marker],
      size: 7,
      // Of a long line just enough to be known by them.
      maxdisplayed: curve.xs.length > ALL_MARKED ? MARKED : 0,
    },
  });

  const markShape = (mark, look) => ({
    type: "line",
    ...(mark.axis === "x"
      ? { x0: mark.at, x1: mark.at, y0: 0, y1: 1, yref: "paper" }
      : { y0: mark.at, y1: mark.at, x0: 0, x1: 1, xref: "paper" }),
    line: { color: look.soft, width: 1, dash: "3px,3px" },
  });

  // On a log scale, plotly takes the place of a text as a power of ten, and that of a line as it is.
  const markName = (mark, isLog, look) => {
    const at = isLog ? Math.log10(mark.at) : mark.at;
    return {
      text: mark.name,
      showarrow: false,
      font: { size: 11, color: look.soft },
      ...(mark.axis === "x"
        ? { x: at, y: 1, yref: "paper", yanchor: "bottom" }
        : { y: at, x: 0, xref: "paper", xanchor: "left", yanchor: "bottom" }),
    };
  };

  const curves = (chart, look) => {
    const curveAxis = (title, isLog, more) =>
      axis(look, {
        title: { text: title, font: { size: 12, color: look.soft }, standoff: 8 },
        type: isLog ? "log" : "linear",
        gridcolor: look.edge,
        exponentformat: "B",
        separatethousands: true,
        nticks: 7,
        showticklabels: !chart.is_empty,
        ...more,
      });
    const nothing = { text: "nothing yet", x: 0.5, xref: "paper", y: 0.5, yref: "paper", showarrow: false };
    return {
      data: [
        ...chart.curves.flatMap((curve) => bandTraces(curve, look)),
        ...chart.curves.map((curve) => curveTrace(curve, look)),
      ],
      layout: {
        height: CURVES_HEIGHT,
        margin: { t: 24, r: 24, b: 10, l: 10 },
        showlegend: true,
        legend: { orientation: "h", x: 0, y: 1.08, yanchor: "bottom", font: { size: 12 } },
        xaxis: curveAxis(chart.x_axis, chart.is_log_x, { showgrid: false }),
        yaxis: curveAxis(chart.y_axis, chart.is_log_y, {}),
        shapes: chart.marks.map((mark) => markShape(mark, look)),
        annotations: chart.is_empty
          ? [nothing]
          : chart.marks.map((mark) => markName(mark, mark.axis === "x" ? chart.is_log_x : chart.is_log_y, look)),
      },
    };
  };

  const KINDS = { bars, funnel, treemap, curves };

  const draw = (id, chart) => {
    const look = !isPrinting && dark.matches ? looks.dark : looks.light;
    const place = document.getElementById(id);
    place.hidden = false;
    const { data, layout } = KINDS[chart.kind](chart, look);
    return Plotly.react(
      place,
      data,
      {
        autosize: true,
        ...(isPrinting ? { autosize: false, width: PAPER_WIDTH } : {}),
        margin: { t: 10, r: 24, b: 10, l: 10 },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: font, size: 13, color: look.ink },
        hovermode: "closest",
        hoverlabel: {
          align: "left",
          bgcolor: look.ground,
          bordercolor: look.soft,
          font: { color: look.ink, size: 13 },
        },
        legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal", font: { size: 12 } },
        dragmode: false,
        ...layout,
      },
      CONFIG,
    );
  };

  const drawAll = () => Promise.all(Object.entries(charts).map(([id, chart]) => draw(id, chart)));

  const setPrinting = (now) => {
    if (now === isPrinting) {
      return;
    }
    isPrinting = now;
    // Tables behind charts go onto paper; what was folded is folded again afterwards.
    for (const details of document.querySelectorAll("details.values")) {
      if (now) {
        details.dataset.wasOpen = String(details.open);
        details.open = true;
      } else {
        details.open = details.dataset.wasOpen === "true";
      }
    }
    drawAll();
  };

  dark.addEventListener("change", drawAll);
  paper.addEventListener("change", (event) => setPrinting(event.matches));
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(false));
  drawAll().then(() => document.documentElement.setAttribute("data-drawn", "yes"));
})();
