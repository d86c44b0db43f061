// Draws the plots of a page from the tables beside them: a row has data-at, data-lag and data-rate.
"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = (text) => (text === "" || text === undefined ? null : Number(text));
  const short = (value) => new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 }).format(value);

  function marks(moments) {
    return (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.strokeStyle = colour("--fair");
      ctx.setLineDash([4, 4]);
      for (const time of moments) {
        const x = plot.valToPos(time, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    };
  }

  // The times of a page are of the console's zone, which need not be the browser's: how many
  // milliseconds it is ahead of UTC says a cell that has a time.
  function zone() {
    const time = document.querySelector("tr[data-at] time[datetime]");
    return time ? Date.parse(`${time.textContent.trim().replace(" ", "T")}Z`) - Date.parse(time.dateTime) : 0;
  }

  // A date whose local parts are those of that zone.
  function there(seconds) {
    const date = new Date(seconds * 1000 + zone());
    return new Date(date.getTime() + 60000 * date.getTimezoneOffset());
  }

  function times(_, ticks) {
    const days = ticks[ticks.length - 1] - ticks[0] > 36 * 3600;
    const seconds = ticks.length > 1 && ticks[1] - ticks[0] < 60;
    const form = days ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit", ...(seconds && { second: "2-digit" }), hourCycle: "h23" };
    const text = new Intl.DateTimeFormat(undefined, form);
    return ticks.map((each) => text.format(there(each)));
  }

  function axis(scale, side) {
    const line = { stroke: colour("--line"), width: 1 };
    const own = scale === "x" ? { values: times, space: 70 } : { values: (_, ticks) => ticks.map(short), size: 52 };
    return { scale, side, stroke: colour("--muted"), font: "12px system-ui, sans-serif", ticks: line, grid: scale === "rate" ? { show: false } : line, ...own };
  }

  function draw(figure) {
    const canvas = figure.querySelector(".canvas");
    const rows = [...figure.querySelectorAll("tr[data-at]")].map((row) => row.dataset);
    if (!canvas || rows.length < 2 || typeof uPlot === "undefined") return;
    const moments = [...document.querySelectorAll("[data-mark]")].map((each) => Number(each.dataset.mark) / 1000);
    const floor = (_, low, high) => [0, Math.max(high, 1) * 1.05];
    const line = (name, scale, stroke, fill) => ({ label: name, scale, stroke: colour(stroke), fill, width: 1.5, points: { show: false }, spanGaps: true });
    const options = {
      width: canvas.clientWidth, height: 240, tzDate: there, legend: { show: false }, cursor: { y: false },
      scales: { x: { time: true }, lag: { range: floor }, rate: { range: floor } },
      axes: [axis("x", 2), axis("lag", 3), axis("rate", 1)],
      series: [{}, line("lag", "lag", "--accent", colour("--soft")), line("rate", "rate", "--key")],
      hooks: { draw: [marks(moments)] },
    };
    const data = [rows.map((each) => Number(each.at) / 1000), rows.map((each) => number(each.lag)), rows.map((each) => number(each.rate))];
    canvas.replaceChildren();
    new uPlot(options, data, canvas);
  }

  const drawAll = () => document.querySelectorAll("[data-plot]").forEach(draw);
  const live = document.querySelector("#live");
  if (live) new MutationObserver(drawAll).observe(live, { childList: true });
  let timer;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(drawAll, 100); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
})();
