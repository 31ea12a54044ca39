#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq
python=/usr/bin/python3
[[ -x $python ]] || skip_all "$python is not installed"
"$python" -c 'import numpy' 2>/dev/null || skip_all "python3-numpy is not installed"

cat >"$INPUT/maths.py" <<'END'
import hashlib
import numpy as np

random = np.random.default_rng(1)
a = random.integers(0, 1000, (700, 700))
b = a.T.copy()
print(hashlib.sha256((a @ b).tobytes()).hexdigest())
x = random.standard_normal(2_000_000)
x.sort()
print(x[:3], x[-3:], x.sum())
print(hashlib.sha256(np.fft.rfft(x).tobytes()).hexdigest())
print(np.linalg.det(random.standard_normal((150, 150))))
y = np.concatenate([x, x[::-1]]).reshape(2, -1)
print(y.mean(axis=1), np.unique((y * 10).astype(int)).size)
masked = y[y > 1]
print(masked.size, np.resize(masked, 12345).sum())
for size in 10, 1000, 100_000, 3_000_000:
    z = np.zeros(size, dtype=np.uint8)
    assert not z.any()
    z += 255
    del z
END
cat >"$INPUT/files.py" <<'END'
import hashlib, os
import numpy as np

def digest(*arrays):
    print(*(hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for array in arrays))

def content(path):
    with open(path, "rb") as file:
        print(path, hashlib.sha256(file.read()).hexdigest())

a = np.random.default_rng(1).standard_normal((900, 700))
np.save("a.npy", a)
np.savez("b.npz", a=a, b=a.astype(np.float32), c=np.arange(7))
np.asfortranarray(a).tofile("c.bin")
np.savetxt("d.txt", a[:60], fmt="%.17g")
for path in "a.npy", "b.npz", "c.bin", "d.txt":
    content(path)
digest(np.load("a.npy"), np.load("a.npy", mmap_mode="r")[::3], np.fromfile("c.bin")[1:])
with np.load("b.npz") as arrays:
    digest(*(arrays[name] for name in sorted(arrays)))
digest(np.loadtxt("d.txt"), np.genfromtxt("d.txt", usecols=(0, 3)))
mapped = np.memmap("c.bin", dtype=np.float64, mode="r+")
mapped[::2] *= 2
mapped.flush()
content("c.bin")
buffer = np.empty(os.path.getsize("c.bin"), dtype=np.uint8)
with open("c.bin", "rb", buffering=0) as file:
    print(file.readinto(buffer), hashlib.sha256(buffer).hexdigest())
END
cat >"$INPUT/objects.py" <<'END'
import gc, hashlib, io, json, pickle, subprocess, sys, threading, zlib

grown = bytearray()
for i in range(3000):
    grown += bytes([i % 251]) * 1000
while len(grown) > 1000:
    del grown[len(grown) * 2 // 3:]
print(len(grown), hashlib.sha256(grown).hexdigest())

tree = {f"key{i}": [i, i / 7, str(i) * (i % 50), {"n": None}] for i in range(30_000)}
text = json.dumps(tree, sort_keys=True)
print(len(text), hashlib.sha256(text.encode()).hexdigest())
assert json.loads(text) == tree
assert pickle.loads(pickle.dumps(tree)) == tree
print(len(zlib.decompress(zlib.compress(text.encode()))))
stream = io.BytesIO()
for i in range(2000):
    stream.write(text[i:i + 2000].encode())
print(hashlib.sha256(stream.getvalue()).hexdigest())

sums = [0] * 4
def work(n):
    for i in range(150):
        block = bytearray((i * 7919 + n) % 300_000 + 1)
        block[-1] = n + 1
        sums[n] += block[-1] + len(block)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sums)

for _ in range(3):
    done = subprocess.run([sys.executable, "-c", "b = bytearray(10**6); print(len(b))"],
                          capture_output=True, text=True)
    print(done.returncode, done.stdout, done.stderr, end="")
print(subprocess.run("tr a-z A-Z", shell=True, input="words\n", text=True,
                     capture_output=True).stdout, end="")
del tree
print(gc.collect() >= 0)
print("to stderr", file=sys.stderr)
sys.exit(3)
END
cat >"$INPUT/processes.py" <<'END'
import hashlib, multiprocessing, sys
import numpy as np

def work(n):
    block = np.arange(n * 10_000 + 100_000)
    return n, int(block.sum()), hashlib.sha256(shared or block.tobytes()).hexdigest()

shared = None

def child(queue, connection):
    data = connection.recv_bytes()
    queue.put((len(data), hashlib.sha256(data).hexdigest(), bytes(300_000)))

if __name__ == "__main__":
    method = sys.argv[1]
    shared = bytes(range(256)) * 4000 if method == "fork" else None
    context = multiprocessing.get_context(method)
    pool = context.Pool(2)
    for result in pool.map(work, range(12)):
        print(result)
    pool.close() # leaving "with" would kill the workers, whose tables would stay
    pool.join()
    queue = context.Queue()
    here, there = context.Pipe()
    process = context.Process(target=child, args=(queue, there))
    process.start()
    here.send_bytes(bytes(2_000_000))
    length, digest, filler = queue.get()
    print(length, digest, len(filler))
    process.join()
    print(process.exitcode)
END

job <<'END'
/usr/bin/python3 "$INPUT/maths.py"
END
same "numpy" python3.*
job <<'END'
/usr/bin/python3 "$INPUT/files.py"
END
same "numpy, files" python3.*
job <<'END'
/usr/bin/python3 "$INPUT/objects.py"
echo "status $?"
END
RANGES=(64K- 4K- 1-)
same "objects, threads, subprocesses" python3.*
for method in fork spawn forkserver; do
	RANGES=(64K-)
	[[ $method != fork ]] || RANGES=(64K- 1-)
	job <<-END
		/usr/bin/python3 "\$INPUT/processes.py" $method
	END
	same "multiprocessing by $method" python3.*
done
finish
