/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that only the plug-in's RUNPATH leads to. */
int neighbour(void);

int neighbour(void)
{
	return 1;
}
