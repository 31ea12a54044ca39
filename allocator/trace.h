/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_TRACE_H
#define PS_TRACE_H
/*
 * Trace points, for perf, bpftrace and SystemTap: static probes (USDT) of provider "pinshim". One that
 * nobody watches is a nop; its arguments are what is in registers or memory anyway, but for the clock, which
 * is read once a chunk or range for those that say how long it took. They are built
 * where <sys/sdt.h> is (Debian's systemtap-sdt-dev), and without it are nothing. The same calls write
 * the events of PINSHIM_TRACE (trace_file.h), where that is set.
 *
 * Every probe is here, and pinshim(7) lists them: bytes are bytes, times nanoseconds, flags
 * PINSHIM_RANGE_*, entry points and limits numbered as in pinshim_table.h and budget.h.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "config.h"
#include "os.h"
#include "trace_file.h"

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define PS_PROBE3(name, a, b, c) STAP_PROBE3(pinshim, name, a, b, c)
#define PS_PROBE4(name, a, b, c, d) STAP_PROBE4(pinshim, name, a, b, c, d)
#define PS_PROBE5(name, a, b, c, d, e) STAP_PROBE5(pinshim, name, a, b, c, d, e)
#else
#define PS_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define PS_PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#define PS_PROBE5(name, a, b, c, d, e) ((void)(a), (void)(b), (void)(c), (void)(d), (void)(e))
#endif

/* Which engine does a request, and how: arguments of io_submit and io_complete. */
enum ps_trace_engine { PS_TRACE_KERNEL, PS_TRACE_RING };
enum ps_trace_kind {
	PS_TRACE_DIRECT, /* direct I/O on the program's own memory */
	PS_TRACE_FIXED,  /* the same, on memory that is registered with the ring */
	PS_TRACE_PASSED, /* as it came: not direct I/O, or no transfer */
	PS_TRACE_BOUNCE, /* misaligned, through a bounce buffer */
	PS_TRACE_DONE,   /* misaligned, and done before the call returned */
	PS_TRACE_TOLD,   /* not repaired: what io_submit said */
};

/* Is there a file to write to? */
static inline bool ps_trace_to_file(void)
{
	return __builtin_expect(ps_config.trace != NULL, 0);
}

/* A block of the heap was handed out, freed, or made longer or shorter where it is. */
static inline void ps_trace_alloc(const void *block, size_t requested, size_t bytes, unsigned entry)
{
	PS_PROBE4(alloc, block, requested, bytes, entry);
}

static inline void ps_trace_free(const void *block, size_t bytes, unsigned entry)
{
	PS_PROBE3(free, block, bytes, entry);
}

static inline void ps_trace_resize(const void *block, size_t from, size_t to, unsigned entry)
{
	PS_PROBE4(resize, block, from, to, entry);
}

/* Memory was pinned, huge_bytes of it in huge pages, since `began` (ps_os_now()). */
static inline void ps_trace_pin(uintptr_t address, size_t bytes, size_t huge_bytes, uint32_t flags,
				uint64_t began)
{
	const uint64_t took = ps_os_now() - began;

	PS_PROBE5(pin, address, bytes, huge_bytes, flags, took);
	if (ps_trace_to_file())
		ps_trace_file_span(&(struct ps_trace_span){ "pin", address, bytes, huge_bytes,
							    flags, 0, began, took });
}

static inline void ps_trace_unpin(uintptr_t address, size_t bytes, uint32_t flags, uint64_t began)
{
	const uint64_t took = ps_os_now() - began;

	PS_PROBE4(unpin, address, bytes, flags, took);
	if (ps_trace_to_file())
		ps_trace_file_span(&(struct ps_trace_span){ "unpin", address, bytes, UINT64_MAX,
							    flags, 0, began, took });
}

/* Memory was registered with the CUDA driver, or error is why not. */
static inline void ps_trace_register(uintptr_t address, size_t bytes, uint32_t flags, int error,
				     uint64_t began)
{
	const uint64_t took = ps_os_now() - began;

	PS_PROBE5(register, address, bytes, flags, error, took);
	if (ps_trace_to_file())
		ps_trace_file_span(&(struct ps_trace_span){ "register", address, bytes, UINT64_MAX,
							    flags, error, began, took });
}

static inline void ps_trace_unregister(uintptr_t address, size_t bytes, uint32_t flags, int error,
				       uint64_t began)
{
	const uint64_t took = ps_os_now() - began;

	PS_PROBE5(unregister, address, bytes, flags, error, took);
	if (ps_trace_to_file())
		ps_trace_file_span(&(struct ps_trace_span){
			"unregister", address, bytes, UINT64_MAX, flags, error, began, took });
}

/* A limit refused something. */
static inline void ps_trace_refuse(const struct ps_refusal *why)
{
	PS_PROBE5(refuse, why->limit, why->asked, why->allowed, why->used, why->error);
	if (ps_trace_to_file())
		ps_trace_file_refusal(why);
}

/* A request is given to the kernel for so many bytes; if that does not take it, it may be given again. */
static inline void ps_trace_io_submit(const void *iocb, enum ps_trace_engine engine, unsigned kind,
				      uint64_t bytes)
{
	PS_PROBE4(io_submit, iocb, engine, kind, bytes);
}

/* It is completed: with the bytes transferred, or -errno. iocb is its address. */
static inline void ps_trace_io_complete(uint64_t iocb, enum ps_trace_engine engine, unsigned kind,
					int64_t result)
{
	PS_PROBE4(io_complete, iocb, engine, kind, result);
}

#endif
