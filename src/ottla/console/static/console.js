// The console works without this file, but for live parts: pages that refresh themselves, the
// filter as one types, keys, and copying. Nothing here reads a record: HTML comes from the server.
"use strict";
(() => {
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  let isPaused = false, asked = 0;

  // Puts the new #live of a page in place of the old one; the focus and the open details stay. Of
  // answers that come late, after another was asked for, nothing is shown.
  async function refresh(address, byItself = {}) {
    const live = find("#live"), mine = ++asked;
    const answer = await fetch(address, { headers: { Accept: "text/html", ...byItself } });
    if (answer.status === 401) location.reload(); // the session is over: nothing of it stays
    if (!answer.ok) throw new Error(answer.statusText || `status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = find("#live", page);
    if (!fresh || !live || mine !== asked) return;
    if (live.contains(document.activeElement) && document.activeElement !== document.body) {
      replaceParts(live, fresh);
    } else {
      live.replaceChildren(...fresh.childNodes);
    }
    const foot = find(".foot"), newFoot = find(".foot", page);
    if (foot && newFoot && !find("details[open]", foot)) foot.replaceChildren(...newFoot.childNodes);
    begin(live);
  }

  // While somebody types in a form of the page, only what is beside the form changes.
  function replaceParts(live, fresh) {
    const kept = [...live.children].filter((each) => each.contains(document.activeElement));
    const form = kept[0];
    if (!form) return;
    const place = [...live.children].indexOf(form);
    const parts = [...fresh.children];
    const status = find("[role=status]", form), newStatus = parts[place] && find("[role=status]", parts[place]);
    if (status && newStatus) status.replaceWith(newStatus);
    all(":scope > *", live).forEach((each) => each === form || each.remove());
    live.prepend(...parts.slice(0, place));
    live.append(...parts.slice(place + 1));
  }

  function beginRefreshing() {
    const live = find("#live[data-refresh]"), button = find("[data-pause]");
    if (!live) return;
    const seconds = Number(live.dataset.refresh);
    let isBusy = false;
    // What is shown is old where no newer one comes: the page must not look as if it were live.
    const say = (isStale) => {
      if (!button) return;
      button.classList.toggle("stale", isStale && !isPaused);
      find("span", button).textContent = isPaused ? "paused" : isStale ? "not up to date" : "live";
    };
    setInterval(async () => {
      if (isPaused || isBusy || document.hidden || String(getSelection())) return;
      isBusy = true;
      try { await refresh(location.href, { "X-Refresh": "1" }); say(false); } catch { say(true); } finally { isBusy = false; }
    }, seconds * 1000);
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      isPaused = !isPaused;
      button.setAttribute("aria-pressed", isPaused);
      say(false);
    });
  }

  // Lists are filtered while one types.
  function begin(root) {
    all("form[data-filter]:not([data-begun])", root).forEach((form) => {
      form.dataset.begun = ""; // one that is typed in stays when the rest is new
      let timer;
      const run = async () => {
        const query = new URLSearchParams([...new FormData(form)].filter(([, text]) => text));
        const address = `${form.getAttribute("action")}?${query}`;
        history.replaceState(null, "", address);
        try { await refresh(address); } catch { form.submit(); }
      };
      form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(run, 50); });
      form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
    });
  }

  // Follows a topic: htmx swaps the rows in above the others; 500 of them stay.
  const MOST_ROWS = 500;
  function beginFollowing() {
    const button = find("[data-live]"), rows = find("#records"), line = find("[data-live-state]");
    if (!button || !rows || !window.htmx) return;
    let stream = null;
    const stop = (words) => {
      stream?.remove();
      stream = null;
      button.textContent = "Follow";
      button.setAttribute("aria-pressed", "false");
      if (words) line.textContent = words;
    };
    const begin = () => {
      stream = document.createElement("div");
      stream.setAttribute("hx-sse:connect", button.dataset.live);
      stream.setAttribute("hx-target", "#records");
      stream.setAttribute("hx-swap", "afterbegin");
      stream.addEventListener("state", (event) => {
        const { came, shown, passed, unread } = JSON.parse(event.detail.data);
        const [first, ...others] = Object.entries(unread);
        line.hidden = false;
        line.textContent = `Following: ${came.toLocaleString()} records have come, ${shown.toLocaleString()} are shown`
          + (passed ? `, ${passed.toLocaleString()} were passed over, as nobody reads so fast.` : ".")
          + (first ? ` Partition ${first[0]} cannot be read now: ${first[1]}` : "")
          + (others.length ? ` (and ${others.length} more)` : "");
        line.classList.toggle("halted", Boolean(first));
      });
      stream.addEventListener("htmx:sse:error", () => {
        line.hidden = false;
        line.textContent = "The console does not answer now; the page goes on from here when it does.";
        line.classList.add("halted");
      });
      stream.addEventListener("end", (event) => stop(`It has ended: ${event.detail.data}`));
      stream.addEventListener("htmx:sse:after:message", () => {
        while (rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
        const empty = find("#live .empty");
        if (empty && rows.rows.length) empty.hidden = true;
      });
      document.body.append(stream);
      htmx.process(stream);
      button.textContent = "Stop";
      button.setAttribute("aria-pressed", "true");
    };
    button.hidden = false;
    button.addEventListener("click", () => (stream ? stop("") : begin()));
  }

  // A search shows how far it is, and is stopped by the button; the page then finds its result.
  function beginSearching() {
    const form = find("form[data-search]"), bar = find("[data-progress]");
    if (!form || !bar || !window.EventSource) return;
    const line = find("span", bar), meter = find("progress", bar), begun = line.textContent;
    let stream = null;
    const stop = () => { stream?.close(); stream = null; bar.hidden = true; };
    const begin = (address, query) => {
      stop();
      bar.hidden = false;
      line.textContent = begun;
      meter.removeAttribute("value");
      stream = new EventSource(`${form.dataset.search}?${query}`);
      stream.addEventListener("progress", (event) => {
        const { read, total } = JSON.parse(event.data);
        if (!total) return;
        meter.max = Math.max(1, Math.min(total, 1000000));
        meter.value = read;
        line.textContent = `Read ${read.toLocaleString()} of ${total.toLocaleString()} records`;
      });
      const go = () => { stop(); location.href = address; };
      stream.addEventListener("done", go);
      stream.addEventListener("end", go);
      stream.addEventListener("error", go);
    };
    form.addEventListener("submit", (event) => {
      const query = new URLSearchParams([...new FormData(form)].filter(([, text]) => text));
      if (!query.get("q")) return;
      event.preventDefault();
      begin(`${form.getAttribute("action")}?${query}`, query);
    });
    find(".pager a[rel=next][data-search]")?.addEventListener("click", (event) => {
      event.preventDefault();
      const address = new URL(event.target.href);
      begin(address.href, address.searchParams);
      scrollTo(0, 0);
    });
    find("button", bar).addEventListener("click", stop);
    addEventListener("pageshow", (event) => event.persisted && stop());
  }

  // A click on a row opens the record below it; its time is a link to its page.
  function beginOpening() {
    const rows = find("#records");
    rows?.addEventListener("click", async (event) => {
      const row = event.target.closest("tr");
      if (!row || row.classList.contains("open") || event.target.closest("a") || String(getSelection())) return;
      if (row.nextElementSibling?.classList.contains("open")) return row.nextElementSibling.remove();
      const answer = await fetch(find("a", row).href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const body = find("#live", page);
      if (!body || row.nextElementSibling?.classList.contains("open")) return; // another click was sooner
      const open = document.createElement("tr"), cell = document.createElement("td");
      open.className = "open";
      cell.colSpan = row.cells.length;
      cell.append(...body.childNodes);
      open.append(cell);
      row.after(open);
    });
  }

  // "/" goes to the search box; j, k and Enter go through the rows of a list.
  function onKey(event) {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing)) {
      event.preventDefault();
      find(".find input")?.focus();
    } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && "jk".includes(event.key)) {
      const links = all("#live tbody a:first-of-type").filter((each) => each.closest("td:first-child, .first"));
      const here = links.indexOf(document.activeElement);
      links[here + (event.key === "j" ? 1 : -1)]?.focus();
    }
  }

  // On a narrow screen the entry of this page may be beyond the edge of its row.
  function showEntries() {
    for (const entry of all(".rail [aria-current], .tabs [aria-current]")) {
      const row = entry.closest("nav"), place = entry.getBoundingClientRect();
      row.scrollLeft += place.left - row.getBoundingClientRect().left - (row.clientWidth - place.width) / 2;
    }
  }

  document.addEventListener("keydown", onKey);
  addEventListener("resize", showEntries);
  showEntries();
  begin(document);
  beginRefreshing();
  beginFollowing();
  beginOpening();
  beginSearching();
})();
