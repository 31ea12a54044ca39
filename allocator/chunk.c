/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chunks. The order of the steps is what keeps the table honest: a chunk is published after it is
 * locked, and withdrawn before it is unlocked.
 *
 * Takes the window's lock, and under it the table's (lock.h). Budget claims and system calls that
 * take long are made with neither.
 */
#include "chunk.h"

#include <errno.h>
#include <sys/mman.h>

#include "config.h"
#include "counters.h"
#include "maps.h"
#include "os.h"
#include "own_stack.h"
#include "populate.h"
#include "registration.h"
#include "table.h"
#include "trace.h"

#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif

/*
 * The slot of a run that could not be unpinned: it stays busy until a later try succeeds. Those with
 * the first of the two still have a claim.
 */
enum { SLOT_LOST = -2, SLOT_LOST_UNCLAIMED = -3 };

/* How many such runs there are. */
static atomic_uint lost_runs;

/* How often all chunks were locked again; a chunk pinned meanwhile may have missed it. */
static atomic_uint relocks;

/* Where the kernel has no PAGEMAP_SCAN: that huge pages are to be counted, and not before when again. */
static struct {
	atomic_bool wanted;
	atomic_uint_fast64_t next; /* ps_os_now() */
} huge_count;

static size_t bytes_of(uint32_t count)
{
	return (size_t)count << PS_GRANULE_SHIFT;
}

static uint32_t table_flags(uint8_t byte)
{
	uint32_t flags = PINSHIM_RANGE_LOCKED;

	flags |= byte & PS_GRANULE_DRIVER ? PINSHIM_RANGE_HEAP_CUDA : PINSHIM_RANGE_HEAP_MALLOC;
	if (byte & PS_GRANULE_HUGE)
		flags |= PINSHIM_RANGE_HUGE;
	return flags;
}

/* Steps through the runs that make up the window below the frontier. */
static uint32_t next_run(uint32_t first)
{
	return first + ps_window.run[first].count;
}

/*
 * Chunks of CUDA host memory are shared, as what CUDA itself allocates is (nvidia_mmap_helper() of NVIDIA's
 * open kernel modules). Of private memory a fork() copies what the driver has pinned (mm/memory.c of Linux,
 * copy_present_page()); with a driver whose pins the kernel does not see, the parent's next write moves the
 * page and the device keeps the old one (WSL#11095, libfabric#5215). The price: each chunk is an object of
 * the kernel's whose memory is freed only when all of it is unmapped, so these chunks are never cut.
 */
static bool is_shared(uint32_t first)
{
	return ps_window.granule[first] & PS_GRANULE_SHARED;
}

/*
 * Drops whatever is mapped and leaves the addresses reserved, in one step. 0 or -errno. After
 * mlockall(MCL_FUTURE) they would count as locked, and what is mapped there next would count twice.
 */
static int unmap(void *address, size_t length)
{
	void *same;
	int r = ps_window_vacate(address, length, MAP_FIXED, &same);

	if (r == 0)
		(void)ps_os_munlock(address, length);
	return r;
}

/*
 * Undoes a pin, whole or half done. The one mmap() may be refused for want of map entries
 * (vm.max_map_count); then unlocking and dropping the pages has the same effect but for the access.
 * Where unlocking needs map entries too, the pages at least are dropped. Shared memory must be unmapped:
 * dropping its pages frees nothing, and the next private chunk at these addresses would be the same
 * object. 0 or -errno; on an error it stays as it is.
 */
static int unpin(uint32_t first)
{
	void *address = ps_granule_address(first);
	const size_t length = bytes_of(ps_window.run[first].count);
	int r = unmap(address, length);

	if (r == 0)
		return 0;
	r = ps_os_munlock(address, length);
	/* After mlockall(MCL_FUTURE) what was in the way may be what is locked. */
	if (is_shared(first))
		return unmap(address, length);
	if (r < 0)
		(void)ps_os_madvise(address, length, MADV_DONTNEED_LOCKED);
	else
		r = ps_os_madvise(address, length, MADV_DONTNEED);
	return r;
}

/* Explicit huge pages, which are never swapped and need no lock. 0 or -errno, *call names what. */
static int pin_hugetlb(void *address, size_t length, bool shared, const char **call)
{
	void *same;
	int r = ps_os_mmap(address, length, PROT_READ | PROT_WRITE,
			   ps_chunk_mapping(shared) | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0, &same);

	*call = "hugetlb";
	/* Populate at once: a pool or cgroup that is empty is an error here, SIGBUS at a touch. */
	return r < 0 ? r : ps_populate(address, length, false, NULL);
}

/*
 * Large chunks, and shared ones for their huge pages (collapse), are charged first (cheap, and refused at
 * once where RLIMIT_MEMLOCK says no), then populated by several threads, then locked, which also catches
 * what populating missed. *arrived as of ps_populate().
 */
static int lock_populated(void *address, size_t length, bool collapse, const char **call,
			  size_t *arrived)
{
	int r = ps_os_mlock_onfault(address, length);

	*call = "mlock";
	if (r == 0 || r == -ENOSYS) {
		r = ps_populate(address, length, collapse, arrived);
		*call = "populating";
	}
	if (r == 0 || r == -EINVAL) {
		r = ps_os_mlock(address, length);
		*call = "mlock";
	}
	return r;
}

/* Ordinary memory, in transparent huge pages where the setting wants them. As pin_hugetlb(). */
static int pin_memory(void *address, size_t length, bool shared, const char **call, size_t *arrived)
{
	const int advice = ps_config.hugepages == PS_HUGEPAGES_THP ? MADV_HUGEPAGE
								   : MADV_NOHUGEPAGE;
	void *same;
	int r;

	/* Without access and unlocked first: mlockall(MCL_FUTURE) would populate it with small pages. */
	if (shared) {
		r = ps_os_mmap(address, length, PROT_NONE, ps_chunk_mapping(shared), -1, 0, &same);
		*call = "mmap";
		if (r < 0)
			return r;
		(void)ps_os_munlock(address, length);
	}
	r = ps_os_mprotect(address, length, PROT_READ | PROT_WRITE);
	*call = "mprotect";
	if (r < 0)
		return r;
	/* Refused by kernels built without huge pages: the memory is as good, only slower. */
	(void)ps_os_madvise(address, length, advice);
	/* The window is in no core file, but blocks are. */
	(void)ps_os_madvise(address, length, MADV_DODUMP);
	if (shared || length >= PS_POPULATE_PARALLEL)
		return lock_populated(address, length, shared && advice == MADV_HUGEPAGE, call,
				      arrived);
	*call = "mlock";
	return ps_os_mlock(address, length);
}

static void count_huge(void *unused)
{
	const uint64_t began = ps_os_now();
	const int64_t huge = ps_maps_huge_bytes((void *)ps_window.base, ps_window.size);
	uint64_t now;

	(void)unused;
	if (huge >= 0)
		__atomic_store_n(&ps_table()->huge_bytes, (uint64_t)huge, __ATOMIC_RELAXED);
	now = ps_os_now();
	/* So that it takes a hundredth of the time at most. */
	atomic_store(&huge_count.next, now + 100 * (now - began));
}

void ps_chunk_count_huge(void)
{
	if (atomic_load_explicit(&huge_count.wanted, memory_order_relaxed))
		ps_on_own_stack(count_huge, NULL);
}

static void explain(const char *call, int error, size_t length, struct ps_refusal *why)
{
	ps_budget_kernel_refused(call, error, length, why);
	if (call[0] == 'h' && (error == ENOMEM || error == EFAULT))
		why->limit = PS_LIMIT_HUGETLB;
}

/*
 * Pins memory that is shared with forked children or private, claims being made. 0, *huge being the bytes
 * in huge pages; or -ENOMEM with *why.
 */
static int pin(void *address, size_t length, bool shared, size_t *huge, struct ps_refusal *why)
{
	const uint64_t began = ps_os_now();
	const bool hugetlb = ps_config.hugepages == PS_HUGEPAGES_HUGETLB;
	size_t arrived = 0;
	const char *call;
	int64_t in_huge;
	int r = hugetlb ? pin_hugetlb(address, length, shared, &call)
			: pin_memory(address, length, shared, &call, &arrived);

	if (!hugetlb)
		ps_budget_arrived(length - arrived);
	if (r < 0) {
		explain(call, -r, length, why);
		return -ENOMEM;
	}
	in_huge = hugetlb ? (int64_t)length : ps_os_huge_bytes(address, length);
	if (in_huge == -ENOTTY)
		atomic_store(&huge_count.wanted, true);
	*huge = in_huge > 0 ? (size_t)in_huge : 0;
	ps_count_add(&ps_table()->pins, 1);
	ps_count_add(&ps_table()->pin_nanoseconds, ps_os_now() - began);
	return 0;
}

static void give(uint32_t first)
{
	ps_lock(&ps_window.lock);
	ps_window_give(first);
	ps_unlock(&ps_window.lock);
}

/*
 * Unpins a busy run and gives claim and addresses back. false where the kernel refuses: then the run
 * stays busy, with its claim, for ps_chunk_retry().
 */
static bool undo(uint32_t first, bool claimed)
{
	const size_t length = bytes_of(ps_window.run[first].count);

	if (unpin(first) < 0) {
		ps_lock(&ps_window.lock);
		ps_window.run[first].slot = claimed ? SLOT_LOST : SLOT_LOST_UNCLAIMED;
		atomic_fetch_add(&lost_runs, 1);
		ps_unlock(&ps_window.lock);
		return false;
	}
	if (claimed)
		ps_budget_release(length);
	give(first);
	return true;
}

static int take(uint32_t count, uint32_t align, uint32_t *first, struct ps_refusal *why)
{
	uint64_t room;
	int r;

	ps_lock(&ps_window.lock);
	r = ps_window_take(count, align, first);
	room = (ps_window.size >> PS_GRANULE_SHIFT) - atomic_load(&ps_window.frontier);
	ps_unlock(&ps_window.lock);
	if (r == 0)
		return 0;
	if (count < room && align < room - count)
		/* There are addresses, but their notes could not be made accessible. */
		ps_budget_kernel_refused("mprotect", ENOMEM, bytes_of(count), why);
	else
		*why = (struct ps_refusal){ .limit = PS_LIMIT_WINDOW,
					    .asked = bytes_of(count),
					    .allowed = ps_window.size,
					    .error = ENOMEM };
	return r;
}

/* Until it is counted again, what was in huge pages is no more than what is left. */
static void limit_huge(void)
{
	struct pinshim_table *table = ps_table();
	const uint64_t locked = ps_count_get(&table->locked_bytes);

	if (atomic_load_explicit(&huge_count.wanted, memory_order_relaxed) &&
	    ps_count_get(&table->huge_bytes) > locked)
		__atomic_store_n(&table->huge_bytes, locked, __ATOMIC_RELAXED);
}

/* Withdraws a locked chunk from table and gauges. Window's lock held or the chunk busy. */
static void withdraw(uint32_t first)
{
	struct ps_run *run = &ps_window.run[first];

	ps_table_remove(run->slot);
	run->slot = -1;
	ps_table_gauges(-(int64_t)bytes_of(run->count), -((int64_t)run->huge << 12), 0, 0, -1);
	limit_huge();
}

/* From now on this chunk is ordinary memory, and counts as such. Window's lock held. */
static void forget_lock(uint32_t first)
{
	const uint32_t count = ps_window.run[first].count;
	const uint64_t began = ps_os_now();

	withdraw(first);
	ps_os_munlock(ps_granule_address(first), bytes_of(count));
	ps_budget_release(bytes_of(count));
	ps_trace_unpin((uintptr_t)ps_granule_address(first), bytes_of(count),
		       table_flags(ps_window.granule[first]), began);
	ps_window_mark(first, count,
		       (ps_window.granule[first] &
			(PS_GRANULE_STATE | PS_GRANULE_HEAP | PS_GRANULE_CHANGED)) |
			       PS_GRANULE_INHERITED);
}

/* Locks a chunk again after the program unlocked everything. Window's lock held. false: it is lost. */
static bool lock_again(uint32_t first)
{
	void *address = ps_granule_address(first);
	const size_t length = bytes_of(ps_window.run[first].count);

	/* Pages of a hugetlb pool never leave memory, and mlock() would ask for the limit all the same. */
	if (ps_config.hugepages == PS_HUGEPAGES_HUGETLB || ps_os_mlock(address, length) == 0)
		return true;
	forget_lock(first);
	return false;
}

static int claim(uint32_t count, struct ps_refusal *why)
{
	const size_t length = bytes_of(count);

	/* The pages of a hugetlb pool are not free memory, so need no room in it. */
	return ps_budget_claim_fresh(length,
				     ps_config.hugepages == PS_HUGEPAGES_HUGETLB ? 0 : length, why);
}

/* Returns a claim that nothing was pinned for. */
static void unclaim(uint32_t count)
{
	if (ps_config.hugepages != PS_HUGEPAGES_HUGETLB)
		ps_budget_arrived(bytes_of(count));
	ps_budget_release(bytes_of(count));
}

/*
 * Makes a chunk of a run that was taken and claimed: pins and publishes it. 0; or -ENOMEM with *why,
 * and then claim and run were given back.
 */
static int make_chunk(uint32_t first, uint32_t count, uint8_t what, struct ps_refusal *why)
{
	const size_t length = bytes_of(count);
	const unsigned seen = atomic_load(&relocks);
	const uint64_t began = ps_os_now();
	const bool shared = what & PS_GRANULE_SHARED;
	size_t huge = 0;
	int slot;

	/* Marked before it is mapped: a child that is forked meanwhile has to know how to unpin it. */
	if (shared) {
		ps_lock(&ps_window.lock);
		ps_window_mark(first, count, PS_GRANULE_BUSY | (what & PS_GRANULE_HEAP));
		ps_unlock(&ps_window.lock);
	}
	if (pin(ps_granule_address(first), length, shared, &huge, why) < 0) {
		undo(first, true);
		return -ENOMEM;
	}
	what |= PS_GRANULE_LOCKED | (huge == length ? PS_GRANULE_HUGE : 0);
	slot = ps_table_add((uintptr_t)ps_granule_address(first), length, table_flags(what));
	if (slot < 0) {
		explain("publishing", -slot, length, why);
		undo(first, true);
		return -ENOMEM;
	}
	ps_table_gauges((int64_t)length, (int64_t)huge, 0, 0, 1);
	ps_lock(&ps_window.lock);
	ps_window.run[first].slot = slot;
	ps_window.run[first].huge = (uint32_t)(huge >> 12);
	ps_window_mark(first, count, what);
	if (atomic_load(&relocks) != seen)
		lock_again(first);
	ps_unlock(&ps_window.lock);
	if (atomic_load(&huge_count.next) <= began)
		ps_chunk_count_huge();
	ps_trace_pin((uintptr_t)ps_granule_address(first), length, huge, table_flags(what), began);
	return 0;
}

int ps_chunk_new(uint32_t count, uint32_t align, uint8_t what, uint32_t *first,
		 struct ps_refusal *why)
{
	/* Claimed first: what is far too much then leaves no trace in the window's notes. */
	if (claim(count, why) < 0)
		return -ENOMEM;
	if (take(count, align, first, why) < 0) {
		unclaim(count);
		return -ENOMEM;
	}
	return make_chunk(*first, count, what, why);
}

int ps_chunk_extend(uint32_t first, uint32_t count)
{
	const uint32_t after = first + ps_window.run[first].count;
	const uint8_t byte = ps_granule_byte(first);
	struct ps_refusal why;
	uint8_t was = 0;
	bool joined;
	int r;

	if (!(byte & PS_GRANULE_LOCKED))
		return -ENOMEM;
	ps_lock(&ps_window.lock);
	r = ps_chunk_stays_whole(first) ? -ENOMEM : ps_window_take_at(after, count);
	ps_unlock(&ps_window.lock);
	if (r < 0)
		return -ENOMEM;
	if (claim(count, &why) < 0) {
		give(after);
		return -ENOMEM;
	}
	if (make_chunk(after, count, byte & (PS_GRANULE_STATE | PS_GRANULE_HEAP), &why) < 0)
		return -ENOMEM;
	ps_lock(&ps_window.lock);
	/* It may have been registered meanwhile, as long as it was. */
	joined = !ps_chunk_stays_whole(first);
	if (joined)
		ps_chunk_merge(first, after);
	else
		was = ps_chunk_busy(after);
	ps_unlock(&ps_window.lock);
	if (!joined)
		ps_chunk_release(after, was);
	return joined ? 0 : -ENOMEM;
}

bool ps_chunk_stays_whole(uint32_t first)
{
	return is_shared(first) || ps_window.run[first].registered;
}

uint8_t ps_chunk_busy(uint32_t first)
{
	const uint8_t was = ps_window.granule[first];

	ps_window_mark(first, ps_window.run[first].count,
		       PS_GRANULE_BUSY | (was & PS_GRANULE_HEAP));
	return was;
}

static bool is_busy(uint32_t first)
{
	return (ps_window.granule[first] & PS_GRANULE_STATE) == PS_GRANULE_BUSY;
}

/* As of a chunk that the driver is told of, which may be busy: somebody waits to release it. */
static uint8_t byte_of(uint32_t first)
{
	const struct ps_run *run = &ps_window.run[first];

	if (!is_busy(first))
		return ps_window.granule[first];
	return (ps_window.granule[first] & PS_GRANULE_HEAP) |
	       (run->huge == run->count << 9 ? PS_GRANULE_HUGE : 0);
}

void ps_chunk_set_registered(uint32_t first, enum ps_registered state)
{
	struct ps_run *run = &ps_window.run[first];

	__atomic_store_n(&run->registered, state, __ATOMIC_RELEASE);
	ps_table_set(run->slot, (uintptr_t)ps_granule_address(first), bytes_of(run->count),
		     table_flags(byte_of(first)) |
			     (state == PS_REGISTERED ? PINSHIM_RANGE_REGISTERED : 0));
}

/* The driver did not let go of it. Not busy, so that it is locked again if the program unlocks all. */
static void leave_for_ever(uint32_t first, uint8_t was)
{
	ps_lock(&ps_window.lock);
	ps_window_mark(first, ps_window.run[first].count,
		       PS_GRANULE_LARGE | (was & ~PS_GRANULE_STATE));
	ps_unlock(&ps_window.lock);
}

size_t ps_chunk_release(uint32_t first, uint8_t was)
{
	const size_t length = bytes_of(ps_window.run[first].count);
	const bool locked = was & PS_GRANULE_LOCKED;
	const uint64_t began = ps_os_now();

	if (__atomic_load_n(&ps_window.run[first].registered, __ATOMIC_ACQUIRE) &&
	    ps_registration_drop(first) != 0) {
		leave_for_ever(first, was);
		return 0;
	}
	if (locked)
		withdraw(first);
	if (!undo(first, locked) || !locked)
		return 0;
	ps_count_add(&ps_table()->unpins, 1);
	ps_trace_unpin((uintptr_t)ps_granule_address(first), length, table_flags(was), began);
	/* What could not be unpinned may have been in want of what this gave back. */
	return length + ps_chunk_retry();
}

/* Finds a lost run and makes it an ordinary busy one. PS_NO_RUN if there is none. */
static uint32_t take_lost(bool *claimed)
{
	uint32_t found = PS_NO_RUN;

	ps_lock(&ps_window.lock);
	for (uint32_t i = 0; i < atomic_load(&ps_window.frontier); i = next_run(i))
		if (is_busy(i) && ps_window.run[i].slot <= SLOT_LOST) {
			found = i;
			break;
		}
	if (found != PS_NO_RUN) {
		*claimed = ps_window.run[found].slot == SLOT_LOST;
		ps_window.run[found].slot = -1;
		atomic_fetch_sub(&lost_runs, 1);
	}
	ps_unlock(&ps_window.lock);
	return found;
}

size_t ps_chunk_retry(void)
{
	size_t unpinned = 0;
	bool claimed;

	while (atomic_load(&lost_runs) > 0) {
		const uint32_t first = take_lost(&claimed);
		size_t length;

		if (first == PS_NO_RUN)
			break;
		length = bytes_of(ps_window.run[first].count);
		if (!undo(first, claimed))
			break;
		unpinned += claimed ? length : 0;
	}
	return unpinned;
}

int ps_chunk_split(uint32_t first, uint32_t at)
{
	struct ps_run *run = &ps_window.run[first];
	struct ps_run *tail = &ps_window.run[at];
	const uint32_t count = run->count, left = at - first;
	const uint8_t byte = ps_window.granule[first];
	const uint32_t huge = run->huge;
	int slot = -1;

	if (ps_chunk_stays_whole(first))
		return -ENOMEM;
	if (byte & PS_GRANULE_LOCKED) {
		slot = ps_table_add((uintptr_t)ps_granule_address(at), bytes_of(count - left),
				    table_flags(byte));
		if (slot < 0)
			return -ENOMEM;
		ps_table_set(run->slot, (uintptr_t)ps_granule_address(first), bytes_of(left),
			     table_flags(byte));
		ps_table_gauges(0, 0, 0, 0, 1);
	}
	ps_window_record(first, left);
	ps_window_record(at, count - left);
	/* Where only part is huge nobody knows which part: shared out in proportion. */
	run->huge = (uint32_t)((uint64_t)huge * left / count);
	tail->huge = huge - run->huge;
	tail->slot = slot;
	tail->kept = 0;
	tail->registered = 0;
	return 0;
}

int ps_chunk_isolate(uint32_t granule)
{
	const uint32_t first = ps_window.run[granule].first;
	int r = 0;

	if (granule > first)
		r = ps_chunk_split(first, granule);
	if (r == 0 && ps_window.run[granule].count > 1)
		r = ps_chunk_split(granule, granule + 1);
	return r;
}

/* The byte of two chunks joined: huge, or locked, only if both are. */
static uint8_t joined_byte(uint32_t first, uint32_t second)
{
	const uint8_t both = PS_GRANULE_HUGE | PS_GRANULE_LOCKED;
	const uint8_t a = ps_window.granule[first], b = ps_window.granule[second];

	return (uint8_t)(((a | b) & ~both) | (a & b & both));
}

void ps_chunk_merge(uint32_t first, uint32_t second)
{
	struct ps_run *run = &ps_window.run[first];
	struct ps_run *tail = &ps_window.run[second];
	uint8_t byte;

	if (((ps_window.granule[first] ^ ps_window.granule[second]) & PS_GRANULE_LOCKED) != 0)
		forget_lock(ps_window.granule[first] & PS_GRANULE_LOCKED ? first : second);
	byte = joined_byte(first, second);
	if (byte & PS_GRANULE_LOCKED) {
		/* Withdraw before widening: no moment may claim a byte that is not there. */
		ps_table_remove(tail->slot);
		tail->slot = -1;
		ps_table_set(run->slot, (uintptr_t)ps_granule_address(first),
			     bytes_of(run->count + tail->count), table_flags(byte));
		ps_table_gauges(0, 0, 0, 0, -1);
	}
	run->huge += tail->huge;
	ps_window_record(first, run->count + tail->count);
	ps_window_mark(first, run->count, byte);
}

static bool is_in_use(uint8_t byte)
{
	const uint8_t state = byte & PS_GRANULE_STATE;

	return state == PS_GRANULE_SLAB || state == PS_GRANULE_LARGE;
}

/* Marks the chunks that reach into granules [from, to] as changed, and not locked if replaced. */
static void mark_changed(uint32_t from, uint32_t to, bool replaced)
{
	ps_lock(&ps_window.lock);
	for (uint32_t i = 0; i < atomic_load(&ps_window.frontier); i = next_run(i)) {
		if (next_run(i) <= from || i > to)
			continue;
		if (replaced && ps_window.granule[i] & PS_GRANULE_LOCKED)
			forget_lock(i);
		if (is_in_use(ps_window.granule[i]))
			ps_window_mark(i, ps_window.run[i].count,
				       ps_window.granule[i] | PS_GRANULE_CHANGED);
	}
	ps_unlock(&ps_window.lock);
}

void ps_chunk_replaced(const void *address, size_t length)
{
	mark_changed(ps_granule_of(address), ps_granule_of((const char *)address + length - 1),
		     true);
}

void ps_chunk_changed(const void *address, size_t length)
{
	const uint32_t to = ps_granule_of((const char *)address + length - 1);

	for (uint32_t i = ps_granule_of(address); i <= to; i++) {
		const uint8_t byte = ps_granule_byte(i);

		if (is_in_use(byte) && !(byte & PS_GRANULE_CHANGED)) {
			mark_changed(i, to, false);
			break;
		}
	}
}

unsigned ps_chunk_relock(void)
{
	unsigned lost = 0;

	ps_lock(&ps_window.lock);
	atomic_fetch_add(&relocks, 1);
	for (uint32_t i = 0; i < atomic_load(&ps_window.frontier); i = next_run(i))
		if (ps_window.granule[i] & PS_GRANULE_LOCKED && !lock_again(i))
			lost++;
	ps_unlock(&ps_window.lock);
	return lost;
}

/*
 * Chunks that somebody was pinning or unpinning at the fork belong to nobody in the child. What cannot be
 * unpinned now waits for ps_chunk_retry().
 */
static void give_busy(void)
{
	uint32_t i = 0;

	while (i < atomic_load(&ps_window.frontier)) {
		const uint32_t next = next_run(i);

		if (is_busy(i)) {
			if (unpin(i) == 0) {
				ps_window_give(i);
			} else {
				ps_window.run[i].slot = SLOT_LOST_UNCLAIMED;
				atomic_fetch_add(&lost_runs, 1);
			}
		}
		i = next;
	}
}

void ps_chunk_fork_child(void)
{
	const uint32_t frontier = (uint32_t)atomic_load(&ps_window.frontier);

	for (uint32_t i = 0; i < frontier; i = next_run(i)) {
		const uint8_t byte = ps_window.granule[i];

		ps_window.run[i].slot = -1;
		ps_window.run[i].registered = 0;
		if (byte & PS_GRANULE_LOCKED)
			ps_window_mark(i, ps_window.run[i].count,
				       (byte & (PS_GRANULE_STATE | PS_GRANULE_HEAP)) |
					       PS_GRANULE_INHERITED);
	}
	atomic_store(&lost_runs, 0);
	give_busy();
}
