/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The malloc family, function by function. Usage: malloc_family [any | LOW HIGH]
 *
 * Without arguments no block may be locked: that is how it runs without the preload, and proves that
 * the cases describe malloc and not pinshim. With numbers, blocks of LOW to HIGH bytes must be locked
 * and start on a page (on a multiple of 512 bytes below 4 KiB), and no others may be locked. With
 * "any" some are, as far as a limit allows.
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>

#include "check.h"

#define K ((size_t)1 << 10)
#define M ((size_t)1 << 20)
#define G ((size_t)1 << 30)

/* No function of the family sets this on success. */
#define UNTOUCHED 4321

static size_t low = SIZE_MAX, high;
static bool any;

static const size_t sizes[] = {
	0,         1,     8,     511,        512,        513,        4095,       4 * K,
	4 * K + 1, 9000,  20000, 64 * K - 1, 64 * K,     64 * K + 1, 100000,     M - 1,
	M,         M + 1, 2 * M, 3 * M + 5,  16 * M - 1, 16 * M,     16 * M + 1, 33 * M + 123,
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static bool served(size_t size)
{
	return low <= size && size <= high;
}

/* Is the block locked exactly when a block of its size is to be? */
static bool locked_as_served(const void *block, size_t size)
{
	return any || is_locked(block, size) == served(size);
}

/* One way to get a block, and the alignment it promises. */
struct maker {
	const char *name;
	void *(*make)(size_t size);
	size_t align;
};

static void *make_malloc(size_t size)
{
	return malloc(size);
}

static void *make_calloc(size_t size)
{
	return size % 2 ? calloc(size, 1) : calloc(size / 2, 2);
}

static void *make_realloc(size_t size)
{
	return realloc(opaque((void *)NULL), size);
}

static void *make_reallocarray(size_t size)
{
	return reallocarray(opaque((void *)NULL), size, 1);
}

static void *make_memalign(size_t size)
{
	return memalign(64, size);
}

static void *make_posix_memalign(size_t size)
{
	void *pointer = NULL;

	return posix_memalign(&pointer, 256, size) ? NULL : pointer;
}

static void *make_aligned_alloc(size_t size)
{
	return aligned_alloc(128, size);
}

static void *make_valloc(size_t size)
{
	return valloc(size);
}

static void *make_pvalloc(size_t size)
{
	return pvalloc(size);
}

static void *make_memalign_2m(size_t size)
{
	return memalign(2 * M, size);
}

static const struct maker makers[] = {
	{ "malloc", make_malloc, 16 },
	{ "calloc", make_calloc, 16 },
	{ "realloc(NULL)", make_realloc, 16 },
	{ "reallocarray(NULL)", make_reallocarray, 16 },
	{ "memalign(64)", make_memalign, 64 },
	{ "posix_memalign(256)", make_posix_memalign, 256 },
	{ "aligned_alloc(128)", make_aligned_alloc, 128 },
	{ "valloc", make_valloc, 4 * K },
	{ "pvalloc", make_pvalloc, 4 * K },
	{ "memalign(2M)", make_memalign_2m, 2 * M },
};

/* What one maker promises at every size; each promise is one case. */
static void each_size(const struct maker *maker)
{
	bool made = true, aligned = true, usable = true, locked = true, page = true, quiet = true;

	for (size_t i = 0; i < SIZES; i++) {
		size_t size = sizes[i], room;
		bool rounds_in = maker->make == make_pvalloc && size < low && size + 4095 >= low;
		bool rounds_out = maker->make == make_pvalloc && size + 4095 > high;
		unsigned char *block;

		errno = UNTOUCHED;
		block = opaque(maker->make(size));
		quiet &= errno == UNTOUCHED;
		if (!block) {
			made = false;
			continue;
		}
		aligned &= (uintptr_t)block % maker->align == 0;
		room = malloc_usable_size(block);
		usable &= room >= size;
		fill(block, room, (unsigned char)i);
		usable &= filled(block, room, room, (unsigned char)i);
		if (size && !rounds_in && !rounds_out)
			locked &= locked_as_served(block, size);
		if (served(size))
			page &= (uintptr_t)block % (size >= 4 * K ? 4 * K : 512) == 0;
		errno = UNTOUCHED;
		free(block);
		quiet &= errno == UNTOUCHED;
	}
	check(made, "%s gives a block at every size from 0 to 33 MiB", maker->name);
	check(aligned, "%s aligns every block to %zu", maker->name, maker->align);
	check(usable, "%s: malloc_usable_size covers the request, usable to the last byte",
	      maker->name);
	check(locked, "%s: the sizes of the ranges are locked, and no others", maker->name);
	check(page, "%s: served blocks start on a page from 4 KiB up, on 512 bytes below",
	      maker->name);
	check(quiet, "%s and free leave errno alone", maker->name);
}

/* realloc from every size to every other, 33 MiB ones last so that blocks move in between. */
static void realloc_every_direction(void)
{
	bool kept = true, room = true, grown = true, shrunk = true, quiet = true;

	for (size_t i = 0; i < SIZES; i++) {
		for (size_t j = 0; j < SIZES; j++) {
			size_t from = sizes[i], to = sizes[j] ? sizes[j] : 1;
			size_t common = from < to ? from : to;
			unsigned char seed = (unsigned char)(i * 16 + j), *block;
			void *neighbour;

			block = opaque(malloc(from));
			fill(block, from, seed);
			neighbour = opaque(malloc(from));
			errno = UNTOUCHED;
			block = opaque(realloc(block, to));
			quiet &= errno == UNTOUCHED;
			kept &= block && filled(block, common, from, seed);
			room &= block && malloc_usable_size(block) >= to;
			if (block)
				fill(block, to, seed);
			if (to > from && (served(to) || !served(from)))
				grown &= locked_as_served(block, to);
			if (!served(to) && from >= 4 * K && to < from / 4)
				shrunk &= locked_as_served(block, to);
			free(neighbour);
			free(block);
		}
	}
	check(kept, "realloc keeps the contents in every direction between the heaps");
	check(room, "realloc gives the new size in every direction, usable to the last byte");
	check(grown, "realloc that grows into a range is served from the pinned heap");
	check(shrunk, "realloc that shrinks far below the ranges leaves the pinned heap");
	check(quiet, "realloc leaves errno alone on success");
}

static void realloc_edges(void)
{
	static const size_t each[] = { 1000, 100000, 20 * M };
	bool null = true, kept = true, enomem = true, array = true;
	long before;

	for (size_t i = 0; i < 3; i++) {
		char *block = opaque(malloc(each[i]));

		fill(block, each[i], 7);
		errno = 0;
		null &= realloc(opaque(block), opaque((size_t)0)) == NULL && errno == 0;

		block = opaque(malloc(each[i]));
		fill(block, each[i], 9);
		errno = 0;
		enomem &= realloc(opaque(block), opaque(SIZE_MAX)) == NULL && errno == ENOMEM;
		errno = 0;
		enomem &= realloc(opaque(block), opaque((size_t)PTRDIFF_MAX)) == NULL &&
			  errno == ENOMEM;
		kept &= filled(block, each[i], each[i], 9);
		errno = 0;
		array &= reallocarray(opaque(block), opaque(SIZE_MAX / 2), 3) == NULL &&
			 errno == ENOMEM;
		errno = 0;
		array &= reallocarray(opaque(block), opaque((size_t)1 << 33), (size_t)1 << 33) ==
				 NULL &&
			 errno == ENOMEM;
		kept &= filled(block, each[i], each[i], 9);
		free(block);
	}
	check(null, "realloc(p, 0) frees and gives NULL without an error");
	check(enomem, "realloc to SIZE_MAX or PTRDIFF_MAX fails with ENOMEM");
	check(array, "reallocarray whose product overflows fails with ENOMEM");
	check(kept, "a realloc that fails keeps the block and its contents");

	before = locked_bytes();
	for (int i = 0; i < 2000; i++)
		if (realloc(opaque(malloc(M)), opaque((size_t)0)))
			break;
	check(locked_bytes() - before <= (long)(64 * M), "realloc(p, 0) really frees the block");
}

static void overflow_and_huge_sizes(void)
{
	void *pointer = (void *)0x5a5a;
	bool none = true;

	errno = 0;
	check(!calloc(opaque(SIZE_MAX / 2), 3) && errno == ENOMEM,
	      "calloc whose product overflows fails with ENOMEM");
	errno = 0;
	check(!calloc(opaque((size_t)1 << 33), (size_t)1 << 33) && errno == ENOMEM,
	      "calloc whose product wraps to 4 bytes fails with ENOMEM");
	errno = 0;
	check(!malloc(opaque(SIZE_MAX)) && errno == ENOMEM, "malloc(SIZE_MAX) fails with ENOMEM");
	errno = 0;
	check(!malloc(opaque((size_t)PTRDIFF_MAX)) && errno == ENOMEM,
	      "malloc(PTRDIFF_MAX) fails with ENOMEM");
	errno = 0;
	check(!malloc(opaque((size_t)PTRDIFF_MAX + 1)) && errno == ENOMEM,
	      "malloc(PTRDIFF_MAX + 1) fails with ENOMEM");
	errno = 0;
	check(!calloc(1, opaque((size_t)PTRDIFF_MAX)) && errno == ENOMEM,
	      "calloc(1, PTRDIFF_MAX) fails with ENOMEM");
	for (size_t size = SIZE_MAX; size > SIZE_MAX - 8192; size -= 97) {
		none &= !malloc(opaque(size)) && !memalign(64, opaque(size));
		none &= !valloc(opaque(size)) && !pvalloc(opaque(size));
		none &= !aligned_alloc(4096, opaque(size)) && !calloc(1, opaque(size));
	}
	check(none, "no function wraps around for sizes just below SIZE_MAX");
	check(posix_memalign(&pointer, 64, opaque(SIZE_MAX)) == ENOMEM && pointer == (void *)0x5a5a,
	      "posix_memalign(SIZE_MAX) gives ENOMEM and leaves the pointer alone");
	errno = 0;
	check(!memalign(opaque((size_t)1 << 62), opaque(64 * K)) && errno == ENOMEM,
	      "memalign to 2^62 fails with ENOMEM");
}

static void alignment(void)
{
	static const size_t bad[] = { 0, 1, 2, 3, 4, 7, 12, 24, 48, 4095, 4097, SIZE_MAX };
	static const size_t request[] = { 100, 64 * K, 3 * M };
	bool refused = true, alone = true, big = true, odd = true;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (size_t j = 0; j < 3; j++) {
			void *pointer = (void *)0x5a5a;
			size_t align = bad[i];

			errno = UNTOUCHED;
			refused &= posix_memalign(&pointer, opaque(align), request[j]) == EINVAL;
			alone &= pointer == (void *)0x5a5a && errno == UNTOUCHED;
		}
	}
	check(refused, "posix_memalign refuses bad alignments with EINVAL");
	check(alone, "posix_memalign leaves the pointer and errno alone when it refuses");

	for (size_t align = 8; align <= G; align *= 2) {
		for (size_t j = 0; j < 3; j++) {
			void *p = NULL, *q = memalign(align, request[j]);

			big &= posix_memalign(&p, align, request[j]) == 0;
			big &= q && (uintptr_t)p % align == 0 && (uintptr_t)q % align == 0;
			if (p && q) {
				fill(p, request[j], 1);
				fill(q, request[j], 2);
				big &= filled(p, request[j], request[j], 1);
			}
			free(p);
			free(q);
		}
	}
	check(big, "memalign and posix_memalign align to every power of two up to 1 GiB");

	for (size_t j = 0; j < 3; j++) {
		void *p = memalign(opaque((size_t)3000), request[j]);

		/* glibc rounds up to a power of two, others say EINVAL. */
		odd &= p ? (uintptr_t)p % 4096 == 0 : errno == EINVAL;
		free(p);
		p = memalign(opaque((size_t)0), request[j]);
		if (p)
			fill(p, request[j], 1);
		free(p);
	}
	check(odd, "memalign to no power of two rounds up or says EINVAL");
}

static bool zeroed(const char *block, size_t size)
{
	return !block[0] && !memcmp(block, block + 1, size - 1);
}

static void calloc_zeroes(void)
{
	static const size_t each[] = { 600, 5000, 64 * K, 300000, 3 * M, 20 * M, 64 * M };

	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		int rounds = each[i] > 4 * M ? 3 : 50;
		bool good = true;

		for (int round = 0; round < rounds; round++) {
			char *dirty = opaque(malloc(each[i])), *clean;

			memset(dirty, 0xff, malloc_usable_size(dirty));
			free(dirty);
			clean = opaque(calloc(1, each[i]));
			good &= zeroed(clean, each[i]);
			memset(clean, 0xee, each[i]);
			free(clean);
		}
		check(good, "calloc of %zu bytes is zero where dirty blocks were freed", each[i]);
	}
}

/* A calloc is a request for the product: libhbw's calloc looked at one factor only. */
static void calloc_counts_the_product(void)
{
	char *a = calloc(64 * K, 16), *b = calloc(16, 64 * K), *c = calloc(K, K), *d = calloc(8, 8);

	check(locked_as_served(a, M) && locked_as_served(b, M) && locked_as_served(c, M) &&
		      locked_as_served(d, 64),
	      "calloc is served by the product of its factors");
	free(a);
	free(b);
	free(c);
	free(d);
}

static void small_matters(void)
{
	void (*cfree)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
	long before, after;
	void *p, *q;

	free(opaque((void *)NULL));
	check(malloc_usable_size(opaque((void *)NULL)) == 0, "malloc_usable_size(NULL) is 0");
	p = opaque(malloc(0));
	q = opaque(malloc(0));
	check(p && q && p != q, "malloc(0) gives distinct blocks");
	free(p);
	free(q);
	p = opaque(calloc(0, 8));
	check(p != NULL, "calloc(0, n) gives a block");
	free(p);

	before = locked_bytes();
	for (int i = 0; cfree && i < 500; i++) {
		cfree(opaque(malloc(100)));
		cfree(opaque(malloc(M)));
	}
	after = locked_bytes();
	if (low != SIZE_MAX)
		check(cfree != NULL, "cfree is there");
	check(!cfree || after - before < (long)(64 * M), "cfree frees");
}

/* Blocks of every size alive at once do not overlap, freed in another order than made. */
static void many_at_once(void)
{
	enum { BLOCKS = 600 };
	static unsigned char *block[BLOCKS];
	bool whole = true, aligned = true;

	for (size_t i = 0; i < BLOCKS; i++) {
		size_t size = sizes[i % (SIZES - 4)];

		block[i] = opaque(malloc(size));
		fill(block[i], size, (unsigned char)i);
		if (served(size))
			aligned &= (uintptr_t)block[i] % (size >= 4 * K ? 4 * K : 512) == 0;
	}
	for (size_t step = 0; step < BLOCKS; step++) {
		size_t i = step * 7 % BLOCKS, size = sizes[i % (SIZES - 4)];

		whole &= filled(block[i], size, size, (unsigned char)i);
		free(block[i]);
	}
	check(whole, "600 blocks of all sizes alive at once do not overlap");
	check(aligned, "and those served start on a page from 4 KiB up, on 512 bytes below");
}

int main(int count, char **argument)
{
	any = count == 2 && !strcmp(argument[1], "any");
	if (count == 3) {
		low = strtoull(argument[1], NULL, 0);
		high = strtoull(argument[2], NULL, 0);
	}
	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
		each_size(&makers[i]);
	realloc_every_direction();
	realloc_edges();
	overflow_and_huge_sizes();
	alignment();
	calloc_zeroes();
	calloc_counts_the_product();
	small_matters();
	many_at_once();
	return check_end();
}
