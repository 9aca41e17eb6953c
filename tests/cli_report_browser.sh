#!/bin/sh
# The report in a real browser: every plot is there, nothing is said on the console, names are toggled, tips are
# shown, and nothing is wider than a phone. $1: the program. Skipped (77) where there is no chromium.
. "$(dirname "$0")/expected/check.sh"
tests=$(cd "$(dirname "$0")" && pwd)
browser=
for name in chromium chromium-browser google-chrome; do
    if command -v $name >/dev/null 2>&1; then browser=$name && break; fi
done
[ -n "$browser" ] || { echo "skipped: no chromium"; exit 77; }

# browse WIDTH SCHEME PAGE: the DOM goes to $work/dom, the log to $work/log. SCHEME: 0 dark, 1 light.
browse() {
    HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --no-first-run --disable-extensions --user-data-dir="$work/profile" --hide-scrollbars \
        --blink-settings=preferredColorScheme="$2" --window-size="$1",900 --enable-logging=stderr \
        --virtual-time-budget=2000 --dump-dom "file://$3" >"$work/dom" 2>"$work/log"
}
dom_has() { grep -qF -- "$1" "$work/dom" || fail "$2: no '$1' in the browser"; }
quiet() {
    if grep -E 'CONSOLE|Refused|Uncaught' "$work/log"; then fail "$1: the console is not silent"; fi
}

browse 1200 1 /dev/null || { echo "skipped: chromium does not run here"; tail -3 "$work/log"; exit 77; }

for optimizer in sgd recover absgd; do
    for seed in 0 1; do sh "$tests/make_runs.sh" "$work/runs/$optimizer-seed$seed" $optimizer $seed 12; done
done
run 0 report "$work/runs"
page=$work/runs/report.html
for scheme in 0 1; do
    browse 1200 $scheme "$page"
    quiet "scheme $scheme"
    [ "$(grep -c '<figure id=' "$work/dom")" -eq 15 ] || fail "not 15 figures"
    [ "$(grep -c '<svg ' "$work/dom")" -eq 15 ] || fail "not 15 plots"
done
for id in accuracy-seconds objective-examples per-class confusion-2-recover effective class-weights-3-sgd; do
    dom_has "<figure id=\"$id\">" "$id"
done

# A copy that may run a script of ours, which tells the page around it what it sees. It is in a frame, because
# a browser's window has a smallest width.
sed -e '/Content-Security-Policy/d' -e '/^<\/body>/d' -e '/^<\/html>/d' "$page" >"$work/probe.html"
cat >>"$work/probe.html" <<'END'
<script>
var d = document, said = [], lines = d.querySelectorAll('#accuracy-seconds path[data-s="1"]');
function shown(e) { return getComputedStyle(e).display != 'none'; }
function say(name, value) { said.push(name + '=' + value); }
say('width', d.documentElement.scrollWidth <= innerWidth ? 'fits' : d.documentElement.scrollWidth);
say('window', innerWidth);
var box = d.querySelector('.scroll');
say('table', box.scrollWidth <= box.clientWidth ? 'fits' : box.scrollWidth);
say('dark', matchMedia('(prefers-color-scheme: dark)').matches);
say('paper', getComputedStyle(d.body).backgroundColor);
say('lines', lines.length);
say('drawn', Array.prototype.every.call(d.querySelectorAll('figure svg'), function (s) {
  var b = s.getBBox(), r = s.getBoundingClientRect();
  return b.width > 200 && b.x > -8 && b.x + b.width < 428 && r.width > 200; }));
d.querySelector('[data-k="1"]').click();
say('hidden', !shown(lines[0]) + ',' + d.querySelector('[data-k="1"]').getAttribute('aria-pressed'));
d.querySelector('[data-k="1"]').click();
say('again', shown(lines[0]));
var mark = d.querySelector('#per-class rect[data-t]');
mark.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 100, clientY: 100}));
say('tip', d.getElementById('tip').textContent == mark.dataset.t && shown(d.getElementById('tip')));
var head = d.querySelectorAll('.results thead th')[2], body = d.querySelector('.results tbody');
function column() { return Array.prototype.map.call(body.rows, function (r) {
  return Number(r.cells[2].querySelector('[data-v]').dataset.v); }); }
function falls(v) { return v.every(function (x, k) { return k == 0 || v[k - 1] >= x; }); }
head.click();
var down = falls(column()) + ',' + head.getAttribute('aria-sort');
head.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
say('sort', down + ',' + falls(column().reverse()) + ',' + head.getAttribute('aria-sort'));
parent.postMessage(said.join(' '), '*');
</script>
</body></html>
END
for width in 375 1280; do
    for scheme in 0 1; do
        cat >"$work/frame.html" <<END
<!DOCTYPE html><meta name="color-scheme" content="light dark"><pre id="said"></pre>
<script>onmessage = function (e) { document.getElementById('said').textContent = e.data }</script>
<iframe src="probe.html" style="width:${width}px;height:800px;border:0"></iframe>
END
        browse 1500 $scheme "$work/frame.html"
        quiet "probe"
        paper='rgb(250, 249, 246)' dark=false
        if [ $scheme -eq 0 ]; then paper='rgb(20, 23, 26)' dark=true; fi
        dom_has "width=fits window=$width table=fits dark=$dark paper=$paper lines=3 drawn=true hidden=true,false again=true tip=true sort=true,descending,true,ascending" \
            "width $width, scheme $scheme ($(grep -o '<pre id="said">.*' "$work/dom"))"
    done
done

# Names from outside stay names.
mkdir -p "$work/hostile"
cat >"$work/hostile/result.json" <<'END'
{"optimizer":"<script>console.log('a')</script>","classes":["<img src=x onerror=console.log('b')>","\"onmouseover=console.log('c')"],
"test":{"accuracy":0.5,"per_class":[0.5,0.25],"confusion":[[3,1],[2,2]]}}
END
run 0 report "$work/hostile"
browse 1200 1 "$work/hostile/report.html"
quiet "hostile names"
dom_has "&lt;img src=x" "hostile names"

finish
