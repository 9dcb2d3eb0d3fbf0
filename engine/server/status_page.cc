#include "status_page.h"

namespace quarry {

// Rates are differences between two answers, divided by the time between them. Latencies are whatever
// counters come as NAME_p50, NAME_p99 and NAME_count, so that a new histogram shows up by itself.
const std::string_view kStatusPage = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Quarry</title>
<style>
:root {
  color-scheme: light dark;
  --back: #f6f7f9; --card: #ffffff; --line: #e2e6eb; --text: #1c2430; --soft: #64707f; --bar: #2f6fde;
  --rail: #e6eaf0; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #12161c; --card: #1a2028; --line: #2b333e; --text: #e4e9f0; --soft: #8f9bab; --bar: #6ea0ff;
    --rail: #2b333e; --bad: #ff8a80;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 24px 16px 48px; }
header { display: flex; align-items: baseline; gap: 12px; }
h1 { font-size: 20px; margin: 0; }
h2 { font-size: 13px; margin: 28px 0 8px; color: var(--soft); font-weight: 600; }
#state { color: var(--soft); }
#state.bad { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px; margin-top: 16px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: 10px 14px; }
.tile b { display: block; font-size: 21px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 12px; }
.card { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 12px; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; font-size: 12px; }
th:first-child, td:first-child { text-align: left; }
tr + tr td { border-top: 1px solid var(--line); }
td.none { color: var(--soft); text-align: left; }
.rail { display: inline-block; vertical-align: middle; width: 80px; height: 7px; margin-left: 8px;
  background: var(--rail); border-radius: 4px; overflow: hidden; }
.rail i { display: block; height: 100%; background: var(--bar); }
details { margin-top: 28px; }
summary { cursor: pointer; color: var(--soft); font-size: 13px; font-weight: 600; margin-bottom: 8px; }
</style>
</head>
<body>
<main>
<header><h1>Quarry</h1><span id="state">connecting</span></header>
<noscript><p>This page needs scripts; the same figures are at <a href="/status.json">/status.json</a> and
<a href="/metrics">/metrics</a>, and in a terminal by <code>quarry top</code>.</p></noscript>
<div class="tiles" id="tiles"></div>
<h2>Roads</h2><div class="card"><table id="roads"></table></div>
<h2>Streams</h2><div class="card"><table id="streams"></table></div>
<h2>Sessions</h2><div class="card"><table id="sessions"></table></div>
<h2>Latencies</h2><div class="card"><table id="latencies"></table></div>
<details><summary>All counters</summary><div class="card"><table id="counters"></table></div></details>
</main>
<script>
'use strict';
let last = null;

const scaled = (value, step, units) => {
  let i = 0;
  while (value >= step && i + 1 < units.length) { value /= step; i++; }
  const digits = i === 0 && Number.isInteger(value) || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits) + units[i];
};
const count = value => value >= 10000 ? scaled(value, 1000, ['', ' k', ' M', ' G', ' T'])
  : Number.isInteger(value) ? String(value) : value.toFixed(1);
const bytes = value => scaled(Math.round(value), 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB', ' PiB']);
const time = s => s === 0 ? '–' : s < 1e-3 ? (s * 1e6).toPrecision(3) + ' µs' : s < 1
  ? (s * 1e3).toPrecision(3) + ' ms' : s.toPrecision(3) + ' s';
const age = s => s < 120 ? Math.floor(s) + ' s' : s < 7200 ? Math.floor(s / 60) + ' min'
  : Math.floor(s / 3600) + ' h';
const percent = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + ' %' : '–';

const element = (tag, text, parent, name) => {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  if (name) made.className = name;
  parent.append(made);
  return made;
};
const bar = (text, share) => ({text, share: Math.max(0, Math.min(1, share || 0))});

// Rows of texts, or of bar()s.
function table(id, heads, rows, none) {
  const made = document.createElement('table');
  const head = element('tr', null, made);
  for (const text of heads) element('th', text, head);
  for (const row of rows) {
    const line = element('tr', null, made);
    for (const cell of row) {
      const place = element('td', cell.text ?? cell, line);
      if (cell.text === undefined) continue;
      const rail = element('span', null, place, 'rail');
      element('i', null, rail).style.width = 100 * cell.share + '%';
    }
  }
  if (rows.length === 0) element('td', none, element('tr', null, made), 'none').colSpan = heads.length;
  made.id = id;
  document.getElementById(id).replaceWith(made);
}

function show(now) {
  const before = last && now.at > last.at ? last : null;
  const rate = (field, item, list) => {
    const old = before && before[list].find(other => other.id === item.id);
    return old ? Math.max(0, (item[field] - old[field]) / (now.at - before.at)) : 0;
  };
  const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);
  const counterRate = name => before && name in before.counters
    ? Math.max(0, (now.counters[name] - before.counters[name]) / (now.at - before.at)) : 0;

  const kinds = Object.keys(now.counters).filter(name => name.endsWith('_p99')).map(name => name.slice(0, -4));
  const streamRate = field => sum(now.streams, stream => rate(field, stream, 'streams'));
  const hits = sum(now.streams, stream => stream.cache_hits);
  const lookups = sum(now.streams, stream => stream.cache_lookups);
  const queued = sum(Object.keys(now.counters).filter(name => name.includes('_queued_')),
    name => now.counters[name]);
  const tiles = [
    [count(now.sessions.length), 'sessions'],
    [count(sum(kinds, kind => counterRate(kind + '_count'))), 'requests / s'],
    [count(streamRate('batches')), 'batches / s'],
    [bytes(streamRate('bytes')) + '/s', 'delivered'],
    [bytes(streamRate('read_bytes')) + '/s', 'read from disk'],
    [percent(hits, lookups), 'rows found in memory'],
    [bytes(sum(now.sessions, session => session.used_bytes)), 'memory of sessions'],
    [count(queued), 'queued'],
    [count(sum(now.sessions, session => session.outstanding)), 'unanswered'],
  ];
  const place = document.getElementById('tiles');
  place.replaceChildren();
  for (const [value, name] of tiles) {
    const tile = element('div', null, place, 'tile');
    element('b', value, tile);
    element('span', name, tile);
  }

  // Since the server started; streams that have gone count too.
  const roads = ['live', 'planned', 'superbatch'].map(road => {
    const of = what => now.counters['quarry_road_' + what + '_total_' + road] || 0;
    const rateOf = what => counterRate('quarry_road_' + what + '_total_' + road);
    return {batches: of('batches'), row: [road, count(of('batches')), count(rateOf('batches')), bytes(of('bytes')),
      bytes(of('read_bytes')), percent(of('useful_bytes'), of('read_bytes')),
      percent(of('cache_hits'), of('cache_lookups'))]};
  });
  table('roads', ['road', 'batches', 'batches / s', 'delivered', 'read', 'useful of it', 'found in memory'],
    roads.filter(road => road.batches > 0).map(road => road.row), 'no batch yet');
  table('streams', ['stream', 'session', 'batches', 'batches / s', 'delivered / s', 'read / s', 'held', 'wanted',
                    'hits'],
    now.streams.map(s => [
      s.id + ' ' + s.road + (s.group ? ' · ' + s.group : ''), s.session, count(s.batches),
      count(rate('batches', s, 'streams')), bytes(rate('bytes', s, 'streams')),
      bytes(rate('read_bytes', s, 'streams')), bar(s.held + ' of ' + s.slots, s.held / s.slots), s.waiting,
      bar(percent(s.cache_hits, s.cache_lookups), s.cache_hits / s.cache_lookups)]),
    'no stream is open');
  table('sessions', ['session', 'pid', 'uid', 'age', 'memory', 'unanswered', 'leases', 'requests / s', 'sent / s',
                     'shared / s'],
    now.sessions.map(s => [
      s.id, s.pid, s.uid, age(s.seconds),
      bar(bytes(s.used_bytes) + ' of ' + bytes(s.budget_bytes), s.used_bytes / s.budget_bytes), s.outstanding,
      s.leases, count(rate('requests', s, 'sessions')), bytes(rate('bytes_sent', s, 'sessions')),
      bytes(rate('shared_bytes', s, 'sessions'))]),
    'nobody is connected');
  const slowest = Math.max(1e-9, ...kinds.map(kind => now.counters[kind + '_p99']));
  table('latencies', ['of', 'so far', 'per second', 'p50', 'p99'],
    kinds.filter(kind => now.counters[kind + '_count'] > 0).map(kind => [
      kind.replace(/^quarry_/, '').replace(/_/g, ' '), count(now.counters[kind + '_count']),
      count(counterRate(kind + '_count')), time(now.counters[kind + '_p50']),
      bar(time(now.counters[kind + '_p99']), now.counters[kind + '_p99'] / slowest)]),
    'nothing was measured yet');
  table('counters', ['name', 'value'],
    Object.entries(now.counters).map(([name, value]) => [name, String(value)]), 'none');
  last = now;
}

async function refresh() {
  const state = document.getElementById('state');
  try {
    const answer = await fetch('/status.json', {signal: AbortSignal.timeout(5000)});
    const now = await answer.json();
    now.at = performance.now() / 1000;
    show(now);
    state.textContent = 'as of ' + new Date().toLocaleTimeString();
    state.className = '';
  } catch (error) {
    state.textContent = 'the server does not answer; trying again';
    state.className = 'bad';
  }
  setTimeout(refresh, 1000);
}
refresh();
</script>
</body>
</html>
)html";

}  // namespace quarry
