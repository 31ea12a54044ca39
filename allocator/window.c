/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The window. Its lock (lock.h has the order) is held by callers of take, give, record and mark;
 * under it only os.h calls that cannot block for long are made, and nothing is allocated.
 *
 * Addresses come from free runs first, best fit, then from above the frontier. Every granule knows
 * its run's first, so that neighbours that are free are joined in whatever order runs come back.
 */
#include "window.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "os.h"

/* Notes are made accessible for this many granules (1 GiB of window) at a time. */
#define COMMIT_STEP 512

#define WINDOW_MIN ((size_t)64 << 20)
#define WINDOW_DEFAULT ((size_t)1 << 40)
#define ORIGINS_PER_GRANULE (PS_GRANULE >> PS_QUANTUM_SHIFT)

struct ps_window ps_window = { .lock = PS_LOCK_INIT, .free_runs = PS_NO_RUN };

static void *reservation; /* where it begins, for ps_window_release() */

static size_t page_up(size_t bytes)
{
	return (bytes + 65535) & ~(size_t)65535;
}

int ps_window_vacate(void *address, size_t length, int flags, void **start)
{
	const int r = ps_os_mmap(address, length, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0, start);

	/* Debuggers that write core files (gcore) write what is reserved, too, if they are not told. */
	if (r == 0)
		(void)ps_os_madvise(*start, length, MADV_DONTDUMP);
	return r;
}

/*
 * Reserves length bytes far below our code, and not where the kernel would put them, next to it. Libraries that are
 * loaded later would then lie beyond a TiB of window, and processors predict calls over so great a distance
 * badly: a training step of a small PyTorch model took 2 to 3 % longer. Where something lies there already,
 * or there is no such place, the kernel chooses. 0 or -errno of mmap.
 */
static int reserve_addresses(size_t length, void **start)
{
	static const uintptr_t distances[] = { (uintptr_t)4 << 40, (uintptr_t)1 << 40 };
	const uintptr_t code = (uintptr_t)&ps_window;

	for (size_t i = 0; i < sizeof(distances) / sizeof(distances[0]); i++) {
		const uintptr_t below = length + distances[i];
		void *place = (void *)((code - below) & -PS_GRANULE);
		int r;

		if (code <= below)
			continue;
		r = ps_window_vacate(place, length, 0, start);
		if (r < 0 || *start == place)
			return r;
		ps_os_munmap(*start, length);
	}
	return ps_window_vacate(NULL, length, 0, start);
}

/* Lays window and notes out in one reservation for size bytes of window. 0 or -errno of mmap. */
static int reserve(size_t size)
{
	const size_t granules = size >> PS_GRANULE_SHIFT;
	const size_t origin_bytes = granules * ORIGINS_PER_GRANULE;
	const size_t run_bytes = page_up(granules * sizeof(struct ps_run));
	const size_t byte_bytes = page_up(granules);
	const size_t total = size + PS_GRANULE + origin_bytes + run_bytes + byte_bytes;
	void *start;
	uintptr_t base;
	int r;

	r = reserve_addresses(total, &start);
	if (r < 0)
		return r;
	reservation = start;
	base = ((uintptr_t)start + PS_GRANULE - 1) & ~(PS_GRANULE - 1);
	ps_window.origin = (uint8_t *)(base + size);
	ps_window.run = (struct ps_run *)(base + size + origin_bytes);
	ps_window.granule = (uint8_t *)(base + size + origin_bytes + run_bytes);
	ps_window.base = base;
	ps_window.size = size;
	return 0;
}

/* Reserved addresses count against RLIMIT_AS: most of it is the program's. */
static size_t fitting(size_t size, uint64_t limit)
{
	while (size > limit / 4)
		size /= 2;
	return size;
}

int ps_window_reserve(uint64_t ram)
{
	size_t size = WINDOW_DEFAULT;
	uint64_t limit;

	while (size < (uint64_t)4 * ram && size < (size_t)1 << 45)
		size *= 2;
	if (ps_os_address_limit(&limit) == 0)
		size = fitting(size, limit);
	for (; size >= WINDOW_MIN; size /= 2)
		if (reserve(size) == 0)
			return 0;
	return -ENOMEM;
}

/* Gives addresses from..to back, by whole pages. */
static void give_back(const void *notes, size_t from, size_t to)
{
	const uintptr_t begin = ((uintptr_t)notes + from + 4095) & ~(uintptr_t)4095;
	const uintptr_t end = (uintptr_t)notes + to;

	if (end > begin)
		ps_os_munmap((void *)begin, end - begin);
}

void ps_window_fit(uint64_t limit)
{
	size_t size, before, after, used;

	ps_lock(&ps_window.lock);
	used = (size_t)atomic_load(&ps_window.frontier) << PS_GRANULE_SHIFT;
	size = fitting(ps_window.size, limit) & -PS_GRANULE;
	if (size < WINDOW_MIN)
		size = WINDOW_MIN;
	if (size < used)
		size = used;
	before = ps_window.size >> PS_GRANULE_SHIFT;
	after = size >> PS_GRANULE_SHIFT;
	if (after < before) {
		/* Whoever looks without the lock finds nothing there in either case. */
		__atomic_store_n(&ps_window.size, size, __ATOMIC_RELAXED);
		give_back((void *)ps_window.base, size, before << PS_GRANULE_SHIFT);
		give_back(ps_window.origin, after * ORIGINS_PER_GRANULE,
			  before * ORIGINS_PER_GRANULE);
		give_back(ps_window.run, after * sizeof(struct ps_run),
			  page_up(before * sizeof(struct ps_run)));
		give_back(ps_window.granule, after, page_up(before));
		if (ps_window.committed > after)
			ps_window.committed = (uint32_t)after;
	}
	ps_unlock(&ps_window.lock);
}

void ps_window_release(void)
{
	const size_t granules = ps_window.size >> PS_GRANULE_SHIFT;

	/* In parts: what ps_window_fit() gave back between them may be others' by now. */
	ps_os_munmap(reservation, ps_window.base + ps_window.size - (uintptr_t)reservation);
	give_back(ps_window.origin, 0, granules * ORIGINS_PER_GRANULE);
	give_back(ps_window.run, 0, granules * sizeof(struct ps_run));
	give_back(ps_window.granule, 0, granules);
	memset(&ps_window, 0, sizeof(ps_window));
	ps_window.free_runs = PS_NO_RUN;
}

/* Makes the bytes of one kind of note accessible for granules from..to, by whole pages. */
static int commit_range(void *notes, size_t bytes_each, uint32_t from, uint32_t to)
{
	const uintptr_t page = 4095;
	uintptr_t start = ((uintptr_t)notes + from * bytes_each) & ~page;
	uintptr_t end = ((uintptr_t)notes + to * bytes_each + page) & ~page;

	return ps_os_mprotect((void *)start, end - start, PROT_READ | PROT_WRITE);
}

/* Makes the notes of all granules below `to` accessible. 0 or -errno of mprotect. */
static int commit_notes(uint32_t to)
{
	const uint32_t all = (uint32_t)(ps_window.size >> PS_GRANULE_SHIFT);
	const uint32_t from = ps_window.committed;
	int r;

	if (to <= from)
		return 0;
	to = (to + COMMIT_STEP - 1) / COMMIT_STEP * COMMIT_STEP;
	if (to > all)
		to = all;
	r = commit_range(ps_window.origin, ORIGINS_PER_GRANULE, from, to);
	if (r == 0)
		r = commit_range(ps_window.run, sizeof(struct ps_run), from, to);
	if (r == 0)
		r = commit_range(ps_window.granule, 1, from, to);
	if (r == 0)
		ps_window.committed = to;
	return r;
}

void ps_window_record(uint32_t first, uint32_t count)
{
	ps_window.run[first].count = count;
	for (uint32_t i = first; i < first + count; i++)
		__atomic_store_n(&ps_window.run[i].first, first, __ATOMIC_RELAXED);
}

void ps_window_mark(uint32_t first, uint32_t count, uint8_t byte)
{
	for (uint32_t i = first; i < first + count; i++)
		__atomic_store_n(&ps_window.granule[i], byte, __ATOMIC_RELAXED);
}

static void free_list_add(uint32_t first)
{
	struct ps_run *run = &ps_window.run[first];

	run->previous = PS_NO_RUN;
	run->next = ps_window.free_runs;
	if (run->next != PS_NO_RUN)
		ps_window.run[run->next].previous = first;
	ps_window.free_runs = first;
}

static void free_list_remove(uint32_t first)
{
	struct ps_run *run = &ps_window.run[first];

	if (run->previous != PS_NO_RUN)
		ps_window.run[run->previous].next = run->next;
	else
		ps_window.free_runs = run->next;
	if (run->next != PS_NO_RUN)
		ps_window.run[run->next].previous = run->previous;
}

static void make_free(uint32_t first, uint32_t count)
{
	ps_window_mark(first, count, PS_GRANULE_FREE);
	ps_window_record(first, count);
	free_list_add(first);
}

static uint32_t align_up(uint32_t index, uint32_t align)
{
	/* Relative to address 0, not to the window: memalign(1 GiB) means the address. */
	const uint64_t origin = ps_window.base >> PS_GRANULE_SHIFT;

	return (uint32_t)(((origin + index + align - 1) & ~(uint64_t)(align - 1)) - origin);
}

/* The smallest free run that count granules fit into, aligned; PS_NO_RUN if none. */
static uint32_t best_free_run(uint32_t count, uint32_t align)
{
	uint32_t best = PS_NO_RUN;

	for (uint32_t i = ps_window.free_runs; i != PS_NO_RUN; i = ps_window.run[i].next) {
		const struct ps_run *run = &ps_window.run[i];
		uint32_t start = align_up(i, align);

		if (start + (uint64_t)count > i + (uint64_t)run->count)
			continue;
		if (best == PS_NO_RUN || run->count < ps_window.run[best].count)
			best = i;
		if (run->count == count)
			break;
	}
	return best;
}

/* Cuts count granules at start out of a free run; what is left on either side stays free. */
static void cut(uint32_t run, uint32_t start, uint32_t count)
{
	const uint32_t end = run + ps_window.run[run].count;

	free_list_remove(run);
	if (start > run)
		make_free(run, start - run);
	if (end > start + count)
		make_free(start + count, end - start - count);
}

/* Makes granules start..start+count the last below the frontier. 0 or -ENOMEM, nothing changed. */
static int raise_frontier(uint32_t start, uint32_t count)
{
	const uint32_t all = (uint32_t)(ps_window.size >> PS_GRANULE_SHIFT);

	if (start > all || count > all - start || commit_notes(start + count) < 0)
		return -ENOMEM;
	atomic_store_explicit(&ps_window.frontier, start + count, memory_order_release);
	return 0;
}

/*
 * Takes a run that no free run holds. A free run that ends at the frontier is where it begins: what
 * lies above is free as well. 0 or -ENOMEM.
 */
static int take_above_frontier(uint32_t count, uint32_t align, uint32_t *first)
{
	const uint32_t frontier = (uint32_t)atomic_load(&ps_window.frontier);
	uint32_t low = frontier;

	if (frontier > 0 && ps_window.granule[frontier - 1] == PS_GRANULE_FREE)
		low = ps_window.run[frontier - 1].first;
	*first = align_up(low, align);
	if (raise_frontier(*first, count) < 0)
		return -ENOMEM;
	if (low < frontier)
		free_list_remove(low);
	if (*first > low)
		make_free(low, *first - low);
	return 0;
}

/* Makes a run of granules that are on no list, busy and without a range in the table. */
static void begin_run(uint32_t first, uint32_t count)
{
	ps_window_mark(first, count, PS_GRANULE_BUSY);
	ps_window_record(first, count);
	ps_window.run[first].slot = -1;
	ps_window.run[first].kept = 0;
	ps_window.run[first].registered = 0;
	for (uint32_t i = first; i < first + count; i++) {
		ps_window.run[i].returned = 0;
		memset(ps_window.run[i].unused, 0, sizeof(ps_window.run[i].unused));
	}
}

int ps_window_take(uint32_t count, uint32_t align, uint32_t *first)
{
	uint32_t run = best_free_run(count, align);

	if (run != PS_NO_RUN) {
		*first = align_up(run, align);
		cut(run, *first, count);
	} else if (take_above_frontier(count, align, first) < 0) {
		return -ENOMEM;
	}
	begin_run(*first, count);
	return 0;
}

int ps_window_take_at(uint32_t at, uint32_t count)
{
	const uint32_t frontier = (uint32_t)atomic_load(&ps_window.frontier);
	uint32_t here;

	if (at > frontier)
		return -ENOMEM;
	if (at < frontier) {
		if (ps_window.granule[at] != PS_GRANULE_FREE)
			return -ENOMEM;
		here = ps_window.run[at].first;
		if (at - here + (uint64_t)count > ps_window.run[here].count)
			return -ENOMEM;
		cut(here, at, count);
	} else if (raise_frontier(at, count) < 0) {
		return -ENOMEM;
	}
	begin_run(at, count);
	return 0;
}

void ps_window_give(uint32_t first)
{
	uint32_t count = ps_window.run[first].count;
	const uint32_t after = first + count;

	if (after < atomic_load(&ps_window.frontier) &&
	    ps_window.granule[after] == PS_GRANULE_FREE) {
		free_list_remove(after);
		count += ps_window.run[after].count;
	}
	if (first > 0 && ps_window.granule[first - 1] == PS_GRANULE_FREE) {
		const uint32_t before = ps_window.run[first - 1].first;

		free_list_remove(before);
		count += first - before;
		first = before;
	}
	make_free(first, count);
}
