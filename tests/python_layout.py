"""The structures of python/libdro/_lib.py are those of the headers: same fields, places and sizes. A field that is
missing there makes the library write behind the structure.

python_layout.py TOP CC: needs the standard library and a C compiler alone; writes one temporary folder."""
import ctypes as c
import os
import subprocess
import sys
import tempfile

top, cc = sys.argv[1:]
NAMES = {"ArraysStruct": "dro_arrays", "DataInfo": "dro_data_info", "Shape": "dro_model_shape", "Progress":
         "dro_train_progress", "Watch": "dro_train_watch", "NetBatch": "dro_net_batch", "NetSource": "dro_net_source",
         "StepBatch": "dro_step_batch"}
PREFIXES = {"DataInfo", "Watch"}  # the library fills none of them behind what it is told, or Python reads less
source = open(os.path.join(top, "python/libdro/_lib.py"), encoding="utf-8").read()
source = source[source.index("# ---- structures of the headers"):source.index("# ---- functions:")]
scope = {"c": c}
exec(source, scope)  # the definitions alone: the library is not loaded
kinds = {name: kind for name, kind in scope.items() if isinstance(kind, type) and issubclass(kind, c.Structure)}
assert len(kinds) >= 15, sorted(kinds)

lines = ["#include <stddef.h>", "#include <stdio.h>"]
headers = os.path.join(top, "include/dro")
lines += [f"#include <dro/{name}>" for name in sorted(os.listdir(headers)) if name.endswith(".h")]
lines += ["int main(void)", "{"]
expected = []
for name, kind in kinds.items():
    struct = NAMES.get(name, "dro_" + name.lower())
    for field, *_ in kind._fields_:
        lines.append(f'    printf("{struct}.{field} %zu\\n", offsetof({struct}, {field}));')
        expected.append(f"{struct}.{field} {getattr(kind, field).offset}")
    if name not in PREFIXES:
        lines.append(f'    printf("{struct} %zu\\n", sizeof({struct}));')
        expected.append(f"{struct} {c.sizeof(kind)}")
lines += ["    return 0;", "}"]
with tempfile.TemporaryDirectory() as folder:
    code, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
    with open(code, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    subprocess.run([cc, "-I", os.path.join(top, "include"), "-o", program, code], check=True)
    found = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")[:-1]
wrong = [f"{a}, and in Python {b.split()[1]}" for a, b in zip(found, expected) if a != b]
for line in wrong:
    print("FAILED: in C", line)
print(f"{len(expected)} fields and sizes, {len(wrong)} differ")
sys.exit(bool(wrong) or len(found) != len(expected))
