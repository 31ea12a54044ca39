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

static const char *first_set(const char *a, const char *b, const char *c)
{
	const char *value = secure_getenv(a);

	if (!value || !*value)
		value = secure_getenv(b);
	if (!value || !*value)
		value = secure_getenv(c);
	return value;
}

void ps_identity_rank(struct pinshim_table *table)
{
	const char *job = first_set("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",
				    "OMPI_MCA_ess_base_jobid");

	copy_string(table->rank, sizeof(table->rank),
		    first_set("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"));
	copy_string(table->local_rank, sizeof(table->local_rank),
		    first_set("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"));
	copy_string(table->job, sizeof(table->job),
		    job && *job ? job : secure_getenv("PMIX_NAMESPACE"));
}

void ps_identity_process(struct pinshim_table *table)
{
	static const char *const backend[] = { "native", "cuda", "off" };

	table->start_time = ps_os_start_time((pid_t)table->pid);
	table->uid = (uint32_t)ps_syscall0(SYS_geteuid);
	copy_string(table->program, sizeof(table->program), ps_text_program());
	copy_string(table->backend, sizeof(table->backend), backend[ps_config.backend]);
}
