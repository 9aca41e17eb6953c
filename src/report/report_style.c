/* The style sheet and the script of a report's page. The script shows and hides methods, shows what
 * is pointed at and sorts tables by the column whose header is clicked; without it everything is
 * there to read. The page's policy lets this script run and no other: SCRIPT_HASH is its SHA-256,
 * which tests/cli_report.sh computes again. */
#include "report_page.h"

#define SCRIPT_HASH "sha256-mvqbwoxCUXnWPiZZ2Luf/5tHUS1pY1V9mr/rVpE7SlU="

static const char script[] =
    "(function(){var d=document,t=d.getElementById('tip');\n"
    "d.addEventListener('click',function(e){var b=e.target.closest('[data-k]');if(!b)return;\n"
    "b.setAttribute('aria-pressed',!d.body.classList.toggle('off'+b.dataset.k))});\n"
    "function tip(e){var p=e.target.closest('[data-t]');t.hidden=!p;if(!p)return;\n"
    "t.textContent=p.dataset.t;\n"
    "t.style.left=Math.max(8,Math.min(e.clientX+14,innerWidth-t.offsetWidth-8))+'px';\n"
    "t.style.top=(e.clientY+(e.clientY>innerHeight-90?-44:18))+'px'}\n"
    "d.addEventListener('pointermove',tip);d.addEventListener('pointerdown',tip);\n"
    "function val(r,i){var c=r.cells[i],v=c&&c.querySelector('[data-v]');\n"
    "var x=v?v.dataset.v:c?c.textContent.trim():'',n=Number(x.replace(/\\s/g,''));\n"
    "return x===''||isNaN(n)?x:n}\n"
    "function sort(e){var h=e.target.closest('thead th');if(!h)return;\n"
    "var i=h.cellIndex,b=h.closest('table').tBodies[0];\n"
    "var up=h.getAttribute('aria-sort')=='descending';\n"
    "h.parentNode.querySelectorAll('th').forEach(function(o){o.removeAttribute('aria-sort')});\n"
    "h.setAttribute('aria-sort',up?'ascending':'descending');\n"
    "Array.prototype.slice.call(b.rows).sort(function(p,q){var x=val(p,i),y=val(q,i),\n"
    "n=typeof x=='number'&&typeof y=='number'?x-y:String(x).localeCompare(String(y));\n"
    "return up?n:-n}).forEach(function(r){b.appendChild(r)})}\n"
    "d.addEventListener('click',sort);\n"
    "d.addEventListener('keydown',function(e){if(e.key=='Enter')sort(e)});\n"
    "d.querySelectorAll('thead th').forEach(function(h){h.tabIndex=0})})();";

static const char layout[] =
    "*{box-sizing:border-box}\n"
    "html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"
    "\"Segoe UI\",Roboto,\"Helvetica Neue\",\"Noto Sans\",Arial,sans-serif;"
    "font-variant-numeric:tabular-nums;overflow-wrap:break-word}\n"
    "header,main,footer{max-width:1200px;margin:0 auto;padding:0 24px}\n"
    "header{padding-top:56px}h1,.notes,.facts,code,dd,button{overflow-wrap:anywhere}\n"
    ".eyebrow{margin:0;color:var(--mut);font-size:13px;letter-spacing:.08em;text-transform:"
    "uppercase}\n"
    "h1{margin:4px 0 14px;font-size:clamp(26px,4.6vw,40px);line-height:1.15;font-weight:650;"
    "letter-spacing:-.018em;text-wrap:balance}\n"
    "h2{margin:0;font-size:22px;font-weight:640;letter-spacing:-.01em}\n"
    "h3{margin:26px 0 8px;font-size:15px;font-weight:600;color:var(--mut)}\n"
    ".lead{margin:4px 0 18px;color:var(--mut);max-width:68ch}\n"
    "section{margin:52px 0 0;scroll-margin-top:70px}\n"
    "small{font-size:.82em;color:var(--mut);font-weight:400}\n"
    ".facts{display:flex;flex-wrap:wrap;gap:6px 26px;margin:0;padding:0;list-style:none}\n"
    ".facts span{color:var(--mut);margin-right:4px}\n"
    ".notes{margin:26px 0 0;padding:12px 18px;border-left:3px solid var(--warn);background:"
    "var(--card);border-radius:0 8px 8px 0;font-size:14px}\n"
    ".notes ul{margin:0;padding:0;list-style:none}.notes li+li{margin-top:6px}\n"
    ".sw{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:8px;"
    "flex:none}\n"
    ".sw.da{-webkit-mask:linear-gradient(90deg,#000 40%,#0000 40% 60%,#000 60%);"
    "mask:linear-gradient(90deg,#000 40%,#0000 40% 60%,#000 60%)}\n"
    ".sw.do{-webkit-mask:repeating-linear-gradient(90deg,#000 0 2px,#0000 2px 4px);"
    "mask:repeating-linear-gradient(90deg,#000 0 2px,#0000 2px 4px)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:14px;"
    "margin:0}\n"
    ".tiles div{background:var(--card);border:1px solid var(--line);border-radius:12px;"
    "padding:14px 16px}\n"
    ".tiles dt{color:var(--mut);font-size:14px}.tiles dd{margin:2px 0 0;font-size:25px;"
    "font-weight:600;letter-spacing:-.01em;line-height:1.3}\n"
    ".tiles small{font-size:14px}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}\n"
    "th,td{padding:9px 10px;text-align:right;border-bottom:1px solid var(--line);vertical-align:"
    "baseline;font-weight:400}\n"
    "th:first-child,td:first-child{text-align:left;padding-left:0}\n"
    "thead th{cursor:pointer}th[aria-sort]:after{content:'\\2009\\2193'}"
    "th[aria-sort=ascending]:after{content:'\\2009\\2191'}\n"
    "thead th{color:var(--mut);font-size:13.5px;line-height:1.3;vertical-align:bottom}\n"
    ".results{font-size:15px}.results tbody "
    "th{font-weight:600;min-width:120px;padding-left:19px;text-indent:-19px}\n"
    ".results td{white-space:nowrap}.best{font-weight:700}\n"
    ".many{font-size:14px}.many small{display:block}.many thead th{font-size:12.5px}\n"
    ".many td,.many th+th{padding-left:5px;padding-right:5px}\n"
    ".legend{position:sticky;top:0;z-index:2;display:flex;flex-wrap:wrap;gap:8px;margin:40px -6px "
    "-28px;padding:10px 6px;background:var(--veil);max-height:30vh;overflow-y:auto}\n"
    "button{display:inline-flex;align-items:center;font:inherit;font-size:14px;text-align:left;"
    "color:inherit;background:var(--card);border:1px solid var(--line);border-radius:999px;"
    "padding:5px 14px 5px 10px;cursor:pointer}\n"
    "button:hover{border-color:var(--mut)}button[aria-pressed=false]{opacity:.45;text-decoration:"
    "line-through}\n"
    "button:focus-visible,summary:focus-visible{outline:2px solid var(--hot);outline-offset:2px}\n"
    ".grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));"
    "gap:22px;align-items:start}\n"
    "figure{margin:0;min-width:0;background:var(--card);border:1px solid var(--line);"
    "border-radius:14px;padding:16px 16px 10px}\n"
    "figcaption{font-weight:600;margin-bottom:8px}\n"
    "svg{display:block;width:100%;max-width:560px;height:auto;margin:0 auto}\n"
    "svg text{font-family:inherit}.l,.l.ink,.l.grd{fill:none}\n"
    ".l{stroke-linejoin:round;stroke-linecap:round;pointer-events:none}\n"
    ".da{stroke-dasharray:7 4}.do{stroke-dasharray:2 4}\n"
    ".p{opacity:0}.p:hover{opacity:.3}text{pointer-events:none}rect[data-t]:hover{stroke:"
    "var(--ink);stroke-width:1}\n"
    "details{margin-top:6px;font-size:14px}summary{color:var(--mut);cursor:pointer;padding:4px 0;"
    "width:max-content;max-width:100%}\n"
    ".wide{overflow:auto;max-height:420px}.num caption{position:absolute;left:-9999px}\n"
    ".num th,.num td{padding:4px 8px}.num th:first-child{padding-left:0}\n"
    ".runs{list-style:none;margin:8px 0 0;padding:0}.runs li{display:flex;flex-wrap:wrap;"
    "gap:2px 18px;padding:8px 0;border-bottom:1px solid var(--line);align-items:baseline}\n"
    ".runs strong{font-weight:600;min-width:170px}.runs code{flex:1 1 240px;color:var(--mut)}\n"
    "code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}\n"
    ".settings{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,250px),1fr));"
    "gap:0 28px;margin:0}\n"
    ".settings div{padding:8px 0;border-bottom:1px solid var(--line)}\n"
    ".settings dt{color:var(--mut);font-size:13.5px}.settings dd{margin:0}\n"
    ".settings dd+dd{margin-top:2px}\n"
    "footer{margin-top:64px;padding-bottom:40px;color:var(--mut);font-size:13.5px}\n"
    "#tip{position:fixed;z-index:3;pointer-events:none;max-width:min(320px,90vw);padding:6px 10px;"
    "border-radius:8px;background:var(--ink);color:var(--bg);font-size:13px;line-height:1.4;"
    "box-shadow:0 4px 16px #0003}\n"
    "@media (max-width:860px){header,main,footer{padding-left:16px;padding-right:16px}"
    "header{padding-top:32px}section{margin-top:40px}\n"
    "figure{padding:12px 10px 8px;border-radius:12px}.runs strong{min-width:0}\n"
    ".settings div{display:grid;grid-template-columns:minmax(96px,36%) 1fr;column-gap:14px}\n"
    ".settings dt{grid-row:1}.settings dd{grid-column:2}\n"
    ".results,.results tbody,.results th,.results td{display:block}\n"
    ".results thead{position:absolute;left:-9999px}\n"
    ".results tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(132px,1fr));gap:8px "
    "14px;background:var(--card);border:1px solid var(--line);border-radius:12px;padding:12px "
    "14px;margin-bottom:12px}\n"
    ".results tbody th{grid-column:1/-1;border:0;padding:0 0 0 19px;font-size:17px}\n"
    ".results td{padding:0;border:0;white-space:normal;text-align:left}\n"
    ".many small{display:inline}\n"
    ".results td:before{content:attr(data-l);display:block;color:var(--mut);font-size:13px;"
    "font-weight:400;line-height:1.3}}\n"
    "@media print{.legend{position:static}body{background:#fff}figure{break-inside:avoid}}\n"
    "@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}\n";

static void colours(dro__buffer *out, const char *bg, const char *veil, const char *card,
                    const char *warn, const dro__theme *theme)
{
    dro__buffer_print(out,
                      ":root{--bg:%s;--veil:%s;--card:%s;--warn:%s;--ink:#%06x;--mut:#%06x;"
                      "--line:#%06x;--hot:#%06x}\n",
                      bg, veil, card, warn, theme->roles[DRO__ROLE_INK],
                      theme->roles[DRO__ROLE_MUTED], theme->roles[DRO__ROLE_GRID],
                      theme->roles[DRO__ROLE_HEAT]);
    dro__theme_css(out, theme);
    dro__buffer_add(out, "\n");
}

void dro__page_head(dro__buffer *out, const char *title)
{
    dro__buffer_add(out,
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                    "img-src data:; style-src 'unsafe-inline'; script-src '" SCRIPT_HASH "'\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                    "<meta name=\"color-scheme\" content=\"light dark\">\n"
                    "<link rel=\"icon\" href=\"data:,\">\n<title>");
    dro__buffer_escape(out, title);
    dro__buffer_add(out, " \xe2\x80\x93 training report</title>\n<style>\n");
    colours(out, "#faf9f6", "#faf9f6e0", "#ffffff", "#b58900", &dro__theme_light);
    dro__buffer_add(out, "@media (prefers-color-scheme:dark){\n");
    colours(out, "#14171a", "#14171ae0", "#1b1f24", "#f0bd4b", &dro__theme_dark);
    dro__buffer_add(out, "}\n");
    dro__buffer_add(out, layout);
    dro__buffer_add(out, "</style>\n</head>\n<body>\n");
}

void dro__page_script(dro__buffer *out, int32_t methods)
{
    dro__buffer_add(out, "<style>");
    for (int32_t m = 0; m < methods; m++)
        dro__buffer_print(out, ".off%d figure [data-s=\"%d\"]{display:none}", m, m);
    dro__buffer_add(out, "</style>\n<div id=\"tip\" role=\"status\" hidden></div>\n<script>");
    dro__buffer_add(out, script);
    dro__buffer_add(out, "</script>\n");
}
