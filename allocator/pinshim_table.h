/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PINSHIM_TABLE_H
#define PINSHIM_TABLE_H
/*
 * The table every process with pinned memory publishes: /dev/shm/pinshim.<pid>.<starttime>, mode
 * 0600, starttime being field 22 of /proc/<pid>/stat. One writer, any number of readers.
 *
 * The file is a struct pinshim_table, then range_capacity records of struct pinshim_range from
 * ranges_offset on. All numbers are in the machine's byte order; bytes are bytes and times are
 * nanoseconds. Fields are only ever added at the end of a struct's reserved space; anything else
 * raises the version, and a reader refuses a version that it does not know.
 *
 * Ranges are read like this (pinshim_table_reader.h does it):
 *   1. read sequence until it is even;
 *   2. copy range_used records; if range_capacity is larger than what is mapped, map again;
 *   3. read sequence again, and start over if it changed.
 * A writer that is killed or stopped in the middle leaves sequence odd for ever: after some tries
 * copy all the same and keep those records whose check field is right. A record is only ever
 * believed whole, so such a copy may miss a range but never claims one that was not pinned.
 *
 * Counters are not under the sequence: each is one 64-bit word, written with atomic stores or adds.
 */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PINSHIM_TABLE_MAGIC UINT64_C(0x656c626174736870) /* "phstable" */
#define PINSHIM_TABLE_VERSION 3
#define PINSHIM_TABLE_PREFIX "pinshim."
#define PINSHIM_TABLE_DIRECTORY "/dev/shm"
#define PINSHIM_RANGES_MAX (1u << 20) /* records that a table has at most */

/* pinshim_range.flags */
#define PINSHIM_RANGE_LOCKED 0x1u       /* every page is locked in memory (mlock, or hugetlb) */
#define PINSHIM_RANGE_REGISTERED 0x2u   /* and registered with the CUDA driver */
#define PINSHIM_RANGE_HUGE 0x4u         /* every byte is in huge pages */
#define PINSHIM_RANGE_FOREIGN 0x8u      /* the program's own memory, pinned where it is */
#define PINSHIM_RANGE_HEAP_CUDA 0x10u   /* of the heaps for CUDA host memory and pinshim_alloc */
#define PINSHIM_RANGE_HEAP_MALLOC 0x20u /* of the heap that serves malloc */

/* pinshim_table.hooks_reached: which ways into the library were ever taken. */
#define PINSHIM_REACHED_MALLOC 0x1u       /* the malloc family */
#define PINSHIM_REACHED_RUNTIME 0x2u      /* a symbol of the CUDA runtime */
#define PINSHIM_REACHED_DLSYM 0x4u        /* dlsym() of a CUDA function */
#define PINSHIM_REACHED_PROC_ADDRESS 0x8u /* cuGetProcAddress() */
#define PINSHIM_REACHED_DRIVER 0x10u      /* a symbol of the CUDA driver */

/* One pinned range. Unused when length is 0; base is then the writer's own (the next unused). */
struct pinshim_range {
	uint64_t base;   /* address in the owner's address space, page-aligned */
	uint64_t length; /* bytes, a multiple of the page size */
	uint32_t flags;  /* PINSHIM_RANGE_* */
	uint32_t serial; /* differs between two ranges that have had the same base */
	uint64_t check;  /* pinshim_range_check() of the other fields */
};

/* The check word: any one of the fields changed without the others gives another value. */
static inline uint64_t pinshim_range_check(const struct pinshim_range *range)
{
	uint64_t mix = range->base * UINT64_C(0x9e3779b97f4a7c15);

	mix = (mix ^ (mix >> 29) ^ range->length) * UINT64_C(0xbf58476d1ce4e5b9);
	mix = (mix ^ (mix >> 32) ^ range->flags) * UINT64_C(0x94d049bb133111eb);
	mix = (mix ^ (mix >> 31) ^ range->serial) * UINT64_C(0x9e3779b97f4a7c15);
	return mix ^ (mix >> 30) ^ PINSHIM_TABLE_MAGIC;
}

/* The ways into the library, each with counters of its own. Numbers never change meaning. */
enum pinshim_entry_point {
	PINSHIM_ENTRY_MALLOC,
	PINSHIM_ENTRY_CALLOC,
	PINSHIM_ENTRY_REALLOC,       /* and reallocarray */
	PINSHIM_ENTRY_ALIGNED,       /* memalign, posix_memalign, aligned_alloc, valloc, pvalloc */
	PINSHIM_ENTRY_PINSHIM_ALLOC, /* and pinshim_pin_copy */
	PINSHIM_ENTRY_PINSHIM_PIN,
	PINSHIM_ENTRY_CUDA_HOST_ALLOC,
	PINSHIM_ENTRY_CUDA_MALLOC_HOST,
	PINSHIM_ENTRY_CUDA_HOST_REGISTER,
	PINSHIM_ENTRY_CU_MEM_HOST_ALLOC,
	PINSHIM_ENTRY_CU_MEM_ALLOC_HOST,
	PINSHIM_ENTRY_CU_MEM_HOST_REGISTER,
	PINSHIM_ENTRIES,          /* how many have a name */
	PINSHIM_ENTRIES_MAX = 24, /* how many the table has room for */
};

/* The limits that refuse a pin; the order is that of pinshim_table.refused. */
#define PINSHIM_LIMITS_MAX 12

/*
 * Counters of one entry point in one stripe. Sum the stripes. A request that this library was
 * responsible for is one of served, fallback and failed.
 */
struct pinshim_entry {
	uint64_t look;            /* the writer's own: when it next looks at the live peak */
	uint64_t served;          /* requests served from the heap (or pinned in place) */
	uint64_t fallback;        /* passed to the next allocator, unpinned */
	uint64_t failed;          /* answered with an error */
	uint64_t requested_bytes; /* asked for by the served requests, ever */
	uint64_t served_bytes;    /* handed out for them, rounding included, ever */
	uint64_t freed;           /* served blocks that were freed, ever */
	uint64_t freed_bytes;     /* as served_bytes, of the freed ones */
};

/*
 * Asynchronous I/O through libpinshim-aio.so. A request that was accepted is one of direct, fixed,
 * bounced and passed. Sum the stripes.
 */
struct pinshim_aio {
	uint64_t submitted; /* requests accepted, ever */
	uint64_t direct;    /* of these: direct I/O on the program's own memory */
	uint64_t fixed;     /* the same, on memory that is registered with the ring */
	uint64_t bounced;   /* through a bounce buffer, whole or in part */
	uint64_t passed;    /* to the kernel as they came: not direct I/O, or no transfer */
	uint64_t repaired;  /* of bounced: what the file system would have refused as misaligned */
	uint64_t failed;    /* completed with an error */
	uint64_t partial;   /* transferred less than asked for: at the end of a file or of space */
	uint64_t bytes;     /* transferred */
	uint64_t contexts;  /* contexts set up (io_setup), ever */
	uint64_t rings;     /* of these: that began with an io_uring */
	uint64_t settled;   /* of rings: that went on with the kernel's AIO, see context.h */
	uint64_t dropped;   /* registered pieces dropped because the memory was unpinned */
	uint64_t reserved[3];
};

/* A thread uses one stripe, so that threads do not contend for counters. */
#define PINSHIM_STRIPES 16

struct pinshim_stripe {
	struct pinshim_entry entry[PINSHIM_ENTRIES_MAX];
	/*
	 * Bytes of freed large blocks that are kept pinned for reuse, of locked_bytes. What one thread
	 * keeps another may take, so only the sum of the stripes, modulo 2^64, has a meaning.
	 */
	uint64_t retained_bytes;
	struct pinshim_aio aio;
	uint64_t reserved[7];
} __attribute__((aligned(64)));

struct pinshim_table {
	uint64_t magic;   /* PINSHIM_TABLE_MAGIC; the file gets its name when all of it is there */
	uint32_t version; /* PINSHIM_TABLE_VERSION */
	uint32_t header_bytes; /* sizeof(struct pinshim_table) */
	uint32_t pid;          /* the owner */
	uint32_t uid;          /* its effective user */
	uint64_t start_time;   /* field 22 of /proc/<pid>/stat */
	uint64_t created;      /* CLOCK_REALTIME, nanoseconds */
	char program[64];      /* base name of the executable */
	char backend[16];      /* PINSHIM_BACKEND */
	char rank[16];         /* RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK; empty if none */
	char local_rank[16];   /* LOCAL_RANK and its kin */
	char job[48];          /* TORCHELASTIC_RUN_ID, SLURM_JOB_ID, OMPI job id; empty if none */
	uint64_t reserved_a[8];

	uint64_t sequence;       /* odd while ranges change */
	uint64_t generation;     /* changes whenever the set of ranges did */
	uint64_t ranges_offset;  /* bytes from the file's start */
	uint32_t range_capacity; /* records that there is room for; grows */
	uint32_t range_used;     /* records to look at, unused ones among them */
	uint64_t reserved_b[8];

	uint64_t pinned_bytes;      /* now: locked_bytes + foreign_bytes */
	uint64_t pinned_peak_bytes; /* the most pinned_bytes ever was */
	uint64_t locked_bytes;      /* of the heap, locked */
	uint64_t registered_bytes;  /* of all, registered with the CUDA driver */
	uint64_t huge_bytes;        /* of the heap, in huge pages when it was pinned */
	uint64_t foreign_bytes;     /* the program's own memory, locked where it is */
	uint64_t claimed_bytes;     /* pinned or being pinned; what PINSHIM_NODE_LIMIT adds up */
	uint64_t chunks;            /* units of pinning of the heap */
	uint64_t pins;              /* chunks and foreign ranges pinned, ever */
	uint64_t unpins;            /* given back, ever */
	uint64_t pin_nanoseconds;   /* spent pinning, ever */
	uint64_t pin_bytes;         /* pinned, ever */
	uint64_t fork_children;     /* forked children that inherited our blocks, ever */
	uint64_t hooks_reached;     /* PINSHIM_REACHED_* */
	uint64_t refused[PINSHIM_LIMITS_MAX]; /* refusals by limit, see pinshim_limit_name() */
	uint64_t refused_bytes;               /* asked for by the refused, ever */
	uint64_t live_peak_bytes[PINSHIM_ENTRIES_MAX]; /* per entry point, sampled */
	uint64_t asking_bytes;  /* asked for, and to be granted or refused within a moment */
	uint64_t credit_bytes;  /* may be claimed without asking until credit_until */
	uint64_t credit_until;  /* CLOCK_MONOTONIC, nanoseconds */
	uint64_t present_bytes; /* of claimed_bytes: memory that is there already */
	uint64_t reserved_c[28];

	struct pinshim_stripe stripe[PINSHIM_STRIPES];
};

#ifdef __cplusplus
}
#endif

#endif
