/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_FAULT_H
#define PS_FAULT_H
/*
 * Fault injection, for tests only: which of the calls of os.h fail, and how.
 *
 * Unit tests call ps_fault_set(). Preload tests use build/fault/libpinshim.so, which reads
 * PINSHIM_FAULT: comma-separated CALL:FIRST[-LAST]:ERRNO, counted from 1 per call, LAST left out
 * after the dash meaning for ever. Example: mlock:2-:ENOMEM,open:1:EACCES
 */
#include "os.h"

#ifdef PS_FAULT_INJECTION
/* Makes calls number first..last (from now, counted from 1) of this kind return -error. */
void ps_fault_set(enum ps_os_call call, unsigned first, unsigned last, int error);
void ps_fault_clear(void);
/* How often this call was reached since ps_fault_clear(). */
unsigned ps_fault_reached(enum ps_os_call call);
/* Reads PINSHIM_FAULT. Called once by the constructor of the fault build; a bad value aborts. */
void ps_fault_from_environment(void);
/* 0, or the errno this call is to fail with. */
int ps_fault(enum ps_os_call call);
#else
static inline int ps_fault(enum ps_os_call call)
{
	(void)call;
	return 0;
}
#endif

#endif
