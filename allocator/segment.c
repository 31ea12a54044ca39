/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tree of segments.
 *
 * A node has up to PLACES places, of which the first are in use, in order. The key of a place is the
 * base of the lowest segment at or below it, always exactly; that of an unused one is NO_KEY. No node
 * of the tree is empty; a node is split when it is full and goes when its last place does. Nodes are
 * not joined: the worst that comes of it is a node for each segment.
 *
 * Readers without a lock go by the sequence, like those of the table. A reader notes the sequence,
 * which must be even, and believes nothing that it read before it has seen the sequence unchanged
 * after it. In particular it follows no address before: what is at an address that was in the tree is
 * a node, for memory is never returned, though by now perhaps a node of another place, whose numbers
 * the next look at the sequence rejects. So it never faults, and never goes down further than the
 * tree had levels. All words that such a reader reads are written with load() and store() only.
 */
#include "segment.h"

#include <errno.h>
#include <sys/mman.h>

#include "os.h"

#define PLACES 32 /* a multiple of STEP */
#define STEP 8    /* keys in a cache line */
#define NO_KEY UINTPTR_MAX

#define LEVELS 16 /* at most; by far more than any number of segments takes */

/* Without the lock. A change takes less time than a few questions, unless its thread is put aside. */
#define TRIES 8

struct ps_node {
	uintptr_t key[PLACES];
	void *below[PLACES];   /* a node, or in a leaf a segment */
	uintptr_t end[PLACES]; /* leaves: of the segment */
	bool pinned[PLACES];   /* leaves: the segment's */
} __attribute__((aligned(64)));

/* The way to a segment, from its leaf, which is level 0. */
struct path {
	struct ps_node *node[LEVELS];
	unsigned place[LEVELS];
};

#define load(word) __atomic_load_n(word, __ATOMIC_RELAXED)
#define store(word, value) __atomic_store_n(word, value, __ATOMIC_RELAXED)

static void change_begin(struct ps_segments *segments)
{
	store(&segments->sequence, segments->sequence + 1);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static void change_end(struct ps_segments *segments)
{
	__atomic_store_n(&segments->sequence, segments->sequence + 1, __ATOMIC_RELEASE);
}

/*
 * How many keys of a node are at or below address, which is not NO_KEY. Nothing here is a branch: the
 * outcome of a comparison is a coin toss, and guessing wrong costs more than all of them.
 */
static inline unsigned count_keys(const struct ps_node *node, uintptr_t address)
{
	const uintptr_t *key = node->key;
	unsigned count;

	for (unsigned i = STEP; i < PLACES; i += STEP)
		key += load(&node->key[i]) <= address ? STEP : 0;
	count = (unsigned)(key - node->key);
	for (unsigned i = 0; i < STEP; i++)
		count += load(&key[i]) <= address;
	return count;
}

static unsigned used(const struct ps_node *node)
{
	return count_keys(node, NO_KEY - 1);
}

/*
 * Fills in the way to the last segment that begins at or below address, or else the first of all.
 * There is one.
 */
static void find(const struct ps_segments *segments, uintptr_t address, struct path *path)
{
	struct ps_node *node = segments->root;

	for (unsigned level = segments->levels - 1;; level--) {
		unsigned count = count_keys(node, address);

		path->node[level] = node;
		path->place[level] = count > 0 ? count - 1 : 0;
		if (level == 0)
			return;
		node = node->below[path->place[level]];
	}
}

/* The segment behind the one that path leads to, or NULL. */
static struct ps_segment *behind(const struct ps_segments *segments, const struct path *path)
{
	for (unsigned level = 0; level < segments->levels; level++) {
		unsigned place = path->place[level] + 1;
		void *below;

		if (place >= used(path->node[level]))
			continue;
		below = path->node[level]->below[place];
		for (; level > 0; level--)
			below = ((struct ps_node *)below)->below[0];
		return below;
	}
	return NULL;
}

struct ps_segment *ps_segment_at_or_above(const struct ps_segments *segments, uintptr_t address)
{
	struct ps_segment *segment;
	struct path path;

	if (!segments->root || address == NO_KEY)
		return NULL;
	find(segments, address, &path);
	segment = path.node[0]->below[path.place[0]];
	return segment->end > address ? segment : behind(segments, &path);
}

static void put(struct ps_segments *segments, struct ps_segment *segment)
{
	segment->next = segments->spares;
	segments->spares = segment;
	segments->spare++;
}

static void put_node(struct ps_segments *segments, struct ps_node *node)
{
	store(&node->below[0], segments->spare_nodes);
	segments->spare_nodes = node;
	segments->spare_node++;
}

static int map_slab(void **slab)
{
	return ps_os_mmap(NULL, PS_SEGMENTS_SLAB, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, slab);
}

int ps_segments_reserve(struct ps_segments *segments, size_t count)
{
	void *slab;
	int error;

	if (segments->levels == LEVELS)
		return -ENOMEM;
	while (segments->spare < count) {
		error = map_slab(&slab);
		if (error)
			return error;
		for (size_t i = PS_SEGMENTS_SLAB / sizeof(struct ps_segment); i-- > 0;)
			put(segments, (struct ps_segment *)slab + i);
	}
	/* At worst each splits a node on every level; levels that are new have fewer nodes yet. */
	while (segments->spare_node < count * (segments->levels + 2)) {
		error = map_slab(&slab);
		if (error)
			return error;
		for (size_t i = PS_SEGMENTS_SLAB / sizeof(struct ps_node); i-- > 0;)
			put_node(segments, (struct ps_node *)slab + i);
	}
	return 0;
}

/* Takes a spare node, and makes it an empty one. */
static struct ps_node *take_node(struct ps_segments *segments)
{
	struct ps_node *node = segments->spare_nodes;

	segments->spare_nodes = node->below[0];
	segments->spare_node--;
	for (unsigned i = 0; i < PLACES; i++)
		store(&node->key[i], NO_KEY);
	return node;
}

static void copy_place(struct ps_node *node, unsigned place, const struct ps_node *from,
		       unsigned from_place)
{
	store(&node->key[place], from->key[from_place]);
	store(&node->below[place], from->below[from_place]);
	store(&node->end[place], from->end[from_place]);
	store(&node->pinned[place], from->pinned[from_place]);
}

/* What a place of a leaf says of its segment. */
static void set_segment(struct ps_node *leaf, unsigned place, struct ps_segment *segment)
{
	store(&leaf->key[place], segment->base);
	store(&leaf->below[place], segment);
	store(&leaf->end[place], segment->end);
	store(&leaf->pinned[place], segment->pinned);
}

static void set_node(struct ps_node *node, unsigned place, struct ps_node *below)
{
	store(&node->key[place], below->key[0]);
	store(&node->below[place], below);
}

/* Removes a place. Returns how many are left. */
static unsigned close_place(struct ps_node *node, unsigned place)
{
	unsigned last = used(node) - 1;

	for (unsigned i = place; i < last; i++)
		copy_place(node, i, node, i + 1);
	store(&node->key[last], NO_KEY);
	return last;
}

/*
 * Makes room at *place of *node. If the node is full, its places from `from` on move to a new one
 * first, which is returned, else NULL; *node and *place say where the room is.
 */
static struct ps_node *open_place(struct ps_segments *segments, unsigned from,
				  struct ps_node **node, unsigned *place)
{
	struct ps_node *upper = NULL;

	if ((*node)->key[PLACES - 1] != NO_KEY) {
		upper = take_node(segments);
		for (unsigned i = from; i < PLACES; i++) {
			copy_place(upper, i - from, *node, i);
			store(&(*node)->key[i], NO_KEY);
		}
	}
	if (upper && *place >= from) {
		*node = upper;
		*place -= from;
	}
	for (unsigned i = used(*node); i > *place; i--)
		copy_place(*node, i, *node, i - 1);
	return upper;
}

/* Tells the nodes above what the lowest key of a node is now. */
static void pass_key(const struct ps_segments *segments, const struct path *path, unsigned level)
{
	const uintptr_t key = path->node[level]->key[0];

	while (++level < segments->levels) {
		store(&path->node[level]->key[path->place[level]], key);
		if (path->place[level] > 0)
			return;
	}
}

/* A root above the old one and the node beside it, or if that is NULL the first node of all. */
static void grow(struct ps_segments *segments, struct ps_node *beside)
{
	struct ps_node *root = take_node(segments);

	if (beside) {
		set_node(root, 0, segments->root);
		set_node(root, 1, beside);
	}
	store(&segments->root, root);
	store(&segments->levels, segments->levels + 1);
}

static void insert(struct ps_segments *segments, struct ps_segment *segment)
{
	struct path path;
	struct ps_node *node, *upper;
	unsigned level = 0, place, from;

	if (segments->levels == 0)
		grow(segments, NULL);
	find(segments, segment->base, &path);
	node = path.node[0];
	place = count_keys(node, segment->base);
	/* At the ends, nodes that are full stay so: segments often come in order. */
	from = place == 0 ? 1 : behind(segments, &path) ? PLACES / 2 : PLACES;
	upper = open_place(segments, from, &node, &place);
	set_segment(node, place, segment);
	pass_key(segments, &path, 0);
	while (upper && ++level < segments->levels) {
		struct ps_node *below = upper;

		node = path.node[level];
		place = path.place[level] + 1;
		upper = open_place(segments, from, &node, &place);
		set_node(node, place, below);
	}
	if (upper)
		grow(segments, upper);
}

struct ps_segment *ps_segment_add_as(struct ps_segments *segments, uintptr_t base, uintptr_t end,
				     bool pinned)
{
	struct ps_segment *segment = segments->spares;

	segments->spares = segment->next;
	segments->spare--;
	*segment = (struct ps_segment){ .base = base, .end = end, .pinned = pinned };
	change_begin(segments);
	insert(segments, segment);
	change_end(segments);
	return segment;
}

void ps_segment_remove(struct ps_segments *segments, struct ps_segment *segment)
{
	struct path path;
	unsigned level = 0;

	find(segments, segment->base, &path);
	change_begin(segments);
	while (!close_place(path.node[level], path.place[level])) {
		put_node(segments, path.node[level]);
		if (++level < segments->levels)
			continue;
		store(&segments->root, NULL);
		store(&segments->levels, 0);
		break;
	}
	if (level < segments->levels)
		pass_key(segments, &path, level);
	while (segments->levels > 1 && used(segments->root) == 1) {
		struct ps_node *root = segments->root;

		store(&segments->root, root->below[0]);
		store(&segments->levels, segments->levels - 1);
		put_node(segments, root);
	}
	change_end(segments);
	put(segments, segment);
}

void ps_segment_resize(struct ps_segments *segments, struct ps_segment *segment, uintptr_t base,
		       uintptr_t end)
{
	struct path path;

	find(segments, segment->base, &path);
	segment->base = base;
	segment->end = end;
	change_begin(segments);
	set_segment(path.node[0], path.place[0], segment);
	if (path.place[0] == 0)
		pass_key(segments, &path, 0);
	change_end(segments);
}

void ps_segments_forget(struct ps_segments *segments)
{
	*segments = (struct ps_segments)PS_SEGMENTS_INIT;
}

static bool unchanged(const struct ps_segments *segments, uint64_t sequence)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return load(&segments->sequence) == sequence;
}

/*
 * Where the last segment that begins at or below address ends, and whether it is pinned; 0 if there
 * is none. To be believed only if the tree is still unchanged.
 */
static uintptr_t look(const struct ps_segments *segments, uint64_t sequence, uintptr_t address,
		      bool *pinned)
{
	const struct ps_node *node = load(&segments->root);
	unsigned levels = load(&segments->levels);

	while (levels-- > 0 && unchanged(segments, sequence)) {
		unsigned count = count_keys(node, address);

		if (count == 0)
			break;
		if (levels > 0) {
			node = load(&node->below[count - 1]);
			continue;
		}
		*pinned = load(&node->pinned[count - 1]);
		return load(&node->end[count - 1]);
	}
	return 0;
}

static bool cover(const struct ps_segments *segments, uint64_t sequence, uintptr_t base,
		  uintptr_t end)
{
	bool pinned;

	while (base < end) {
		uintptr_t next = look(segments, sequence, base, &pinned);

		if (next <= base || !pinned)
			return false;
		base = next;
	}
	return true;
}

static bool touch(const struct ps_segments *segments, uint64_t sequence, uintptr_t base,
		  uintptr_t end)
{
	bool pinned;

	return look(segments, sequence, end - 1, &pinned) > base;
}

/* Asks until the tree has not changed meanwhile; at last by seeing to it that it does not. */
static inline bool ask(const struct ps_segments *segments, struct ps_lock *lock, uintptr_t base,
		       uintptr_t end,
		       bool (*question)(const struct ps_segments *segments, uint64_t sequence,
					uintptr_t base, uintptr_t end))
{
	bool answer;

	for (unsigned try = 0; try < TRIES; try++, ps_pause()) {
		uint64_t sequence = __atomic_load_n(&segments->sequence, __ATOMIC_ACQUIRE);

		if (sequence & 1)
			continue;
		answer = question(segments, sequence, base, end);
		if (unchanged(segments, sequence))
			return answer;
	}
	ps_lock(lock);
	answer = question(segments, segments->sequence, base, end);
	ps_unlock(lock);
	return answer;
}

bool ps_segments_cover(const struct ps_segments *segments, struct ps_lock *lock, uintptr_t base,
		       uintptr_t end)
{
	return ask(segments, lock, base, end, cover);
}

bool ps_segments_touch(const struct ps_segments *segments, struct ps_lock *lock, uintptr_t base,
		       uintptr_t end)
{
	return ask(segments, lock, base, end, touch);
}
