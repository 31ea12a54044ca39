/* SPDX-License-Identifier: BSD-2-Clause */
#include "identity.h"

#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "os.h"
#include "syscall.h"
#include "text.h"

static void copy_string(char *to, size_t size, const char *from)
{
	size_t length = from ? strnlen(from, size - 1) : 0;

	memset(to, 0, size);
	if (length)
		memcpy(to, from, length);
}

/* Copies the first of these variables, ended by NULL, that is set to something. */
static void copy_first(char *to, size_t size, const char *const *name)
{
	const char *value = NULL;

	for (; *name && (!value || !*value); name++) {
		value = secure_getenv(*name);
		/* torchrun calls every job that was given no name so. */
		if (value && strcmp(value, "none") == 0)
			value = NULL;
	}
	copy_string(to, size, value);
}

void ps_identity_rank(struct pinshim_table *table)
{
	static const char *const rank[] = { "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", NULL };
	static const char *const local_rank[] = { "LOCAL_RANK", "SLURM_LOCALID",
						  "OMPI_COMM_WORLD_LOCAL_RANK", NULL };
	static const char *const job[] = { "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",
					   "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", NULL };

	copy_first(table->rank, sizeof(table->rank), rank);
	copy_first(table->local_rank, sizeof(table->local_rank), local_rank);
	copy_first(table->job, sizeof(table->job), job);
}

void ps_identity_process(struct pinshim_table *table)
{
	static const char *const backend[] = { "native", "cuda", "off" };

	table->start_time = ps_os_start_time((pid_t)table->pid);
	table->uid = (uint32_t)ps_syscall0(SYS_geteuid);
	copy_string(table->program, sizeof(table->program), ps_text_program());
	copy_string(table->backend, sizeof(table->backend), backend[ps_config.backend]);
}
