/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FAKE_H
#define FAKE_H
/*
 * Inside the fake libcuda.so.1. One mutex guards everything below; enter() takes it and leave()
 * gives it back, every exported call is in between, and malloc and munmap are called under it, as
 * drivers do: a shim that calls the driver from inside malloc or munmap deadlocks here, too.
 *
 * A forked child of a process that called cuInit holds nothing: there enter() returns 3, nothing is
 * locked and nothing is touched. The same goes for code 4 once the library's destructor has run.
 *
 * Sources of the rules: the comments of cuda.h and cuda_runtime_api.h 13.0, and what users saw on real drivers.
 */
#include "fake_cuda.h"

/* What enter() has to check besides that cuInit was called. */
enum {
	BEFORE_INIT = 1,   /* the call works before cuInit */
	NEEDS_CONTEXT = 2, /* a live context must be current */
	UNSAFE = 4, /* prohibited while a stream captures (cuThreadExchangeStreamCaptureMode) */
};

/* A call and how often it was made. Static in the function it is for. */
struct call {
	const char *name;
	struct call *next; /* in the list of all that were made */
	unsigned long count;
	bool listed;
};

struct context {
	struct context *next;
	int device;
	bool primary;
	bool alive;        /* created and not destroyed; a primary one: retained and not reset */
	unsigned retained; /* a primary one's references */
};

enum range_kind {
	RANGE_REGISTERED, /* cuMemHostRegister */
	RANGE_ALLOCATED,  /* cuMemHostAlloc */
	RANGE_DEVICE,     /* cuMemAlloc: addresses nobody can read, backed by memory elsewhere */
	RANGE_ALIAS,      /* the device's addresses of a write-combined allocation */
};

/* Addresses CUDA knows; ranges never overlap. */
struct range {
	uintptr_t base;
	size_t size;   /* as asked for */
	size_t extent; /* of allocations: whole pages */
	enum range_kind kind;
	unsigned flags;
	struct context *owner;
	char *memory;             /* where its bytes are */
	uintptr_t device_pointer; /* by which a device reaches it */
	uint64_t id;
	bool gone; /* was found unmapped, and reported */
};

extern bool fake_initialised;
extern int fake_device_count;

/* control.c */
int enter(struct call *call, int needs);
int leave(struct call *call, int result, uintptr_t pointer, size_t size, unsigned flags);
void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* context.c */
struct context *current_context(void);
/* 0, 201 without one, 709 if the current one is destroyed. */
int check_context(void);
struct context *primary_context(int device);

/* range.c */
void range_check_all(void); /* for memory unmapped meanwhile */
struct range *range_find(uintptr_t address);
/* Is any byte of [base, base+size) in a range? The first such range, or NULL. */
struct range *range_overlap(uintptr_t base, size_t size);
/* Takes over a copy. False without memory. */
bool range_add(const struct range *range);
void range_remove(struct range *range);
/* Drops and releases what a context owns. */
void range_drop_context(const struct context *context);
/* Are all pages mapped? If not, says so once by what, and false. */
bool range_is_mapped(struct range *range, const char *what);
bool is_mapped(uintptr_t base, size_t size);
/* Pages for size bytes; NULL without memory. */
char *pages_new(size_t size, int protection);
size_t whole_pages(size_t size);
void range_totals(enum range_kind kind, unsigned long *count, size_t *bytes);

/* copy.c: carrying out what is queued */
void finish_stream(struct context *context, uint64_t stream, uint64_t last);
void finish_context(const struct context *context);
void finish_everything(void);
uint64_t last_queued(void);
unsigned long pending_copies(void);
int queue_wait(struct context *context, uint64_t stream, bool blocking,
	       struct context *other_context, uint64_t other_stream, uint64_t last);
/* The error of a copy carried out since the last call, or 0. */
int copy_error(void);

/* stream.c */
struct stream_place {
	uint64_t id;    /* 0: the legacy default stream */
	bool blocking;  /* is ordered against the default stream */
	bool capturing; /* work is not carried out */
};
/* Where work for a stream goes: 0, 400, 901, or 906 if the default stream may not be used now. */
int stream_place(fake_cu_stream stream, struct stream_place *place);
/* 900, once every capture it conflicts with is invalidated, if this thread may do nothing unsafe. */
int check_capture(void);
void stream_drop_context(const struct context *context);

#endif
