/* SPDX-License-Identifier: BSD-2-Clause */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "doctor.h"
#include "os.h"

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define SMALL_PAGES "blocks are in 4 KiB pages: pinning and large I/O are slower"

/* The word in brackets of a file such as "always [madvise] never"; empty where there is none. */
static void read_choice(const char *path, char *choice, size_t size)
{
	char content[256];
	struct ps_text text = { choice, size, 0, false };
	const char *begin, *end;

	choice[0] = '\0';
	if (ps_os_read_file(path, content, sizeof(content)) < 0)
		return;
	begin = strchr(content, '[');
	end = begin ? strchr(begin, ']') : NULL;
	if (end)
		ps_text_add(&text, "%.*s", (int)(end - begin - 1), begin + 1);
}

static void check_transparent(struct ps_doctor *doctor)
{
	enum ps_state worse = doctor->config.hugepages == PS_HUGEPAGES_THP ? PS_STATE_WARNING
									   : PS_STATE_OK;
	struct ps_findings *findings = &doctor->findings;
	char enabled[32], size[32];

	read_choice(THP "enabled", enabled, sizeof(enabled));
	/* Since Linux 6.8 each size has a choice of its own. */
	read_choice(THP "hugepages-2048kB/enabled", size, sizeof(size));
	if (size[0] && strcmp(size, "inherit") != 0)
		memcpy(enabled, size, sizeof(enabled));
	if (!enabled[0])
		ps_findings_add(findings, worse, "thp",
				"a kernel with CONFIG_TRANSPARENT_HUGEPAGE, or "
				"PINSHIM_HUGEPAGES=hugetlb",
				"the kernel has no transparent huge pages: " SMALL_PAGES);
	else if (!strcmp(enabled, "never"))
		ps_findings_add(findings, worse, "thp",
				"echo madvise >" THP "enabled, or use PINSHIM_HUGEPAGES=hugetlb",
				"transparent huge pages are off (never): " SMALL_PAGES);
	else if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1)
		ps_findings_add(findings, worse, "thp",
				"start the program without PR_SET_THP_DISABLE",
				"transparent huge pages are off for this process and its "
				"children: " SMALL_PAGES);
	else
		ps_findings_add(findings, PS_STATE_OK, "thp", NULL,
				"transparent huge pages are to be had (%s)%s", enabled,
				doctor->config.hugepages == PS_HUGEPAGES_THP
					? ""
					: ", but PINSHIM_HUGEPAGES does not want them");
}

static void check_pool(struct ps_doctor *doctor)
{
	bool wanted = doctor->config.hugepages == PS_HUGEPAGES_HUGETLB;
	uint64_t pages = 0, free_pages = 0, reserved = 0, bytes;
	enum ps_state state = PS_STATE_OK;
	struct ps_text found, remedy;

	ps_doctor_number(POOL "nr_hugepages", &pages);
	ps_doctor_number(POOL "free_hugepages", &free_pages);
	ps_doctor_number(POOL "resv_hugepages", &reserved);
	free_pages = free_pages > reserved ? free_pages - reserved : 0;
	bytes = free_pages * PS_CHUNK_BYTES;
	if (wanted)
		state = ps_doctor_enough(doctor, bytes);
	ps_findings_begin(&doctor->findings, state, "hugetlb", &found, &remedy);
	ps_text_add(&found, "%lu pages of 2 MiB in the pool, %lu free%s", pages, free_pages,
		    wanted ? "" : ": only PINSHIM_HUGEPAGES=hugetlb uses them");
	if (wanted)
		ps_doctor_add_shortfall(doctor, bytes, &found);
	if (state != PS_STATE_OK)
		ps_text_add(&remedy, "'sysctl vm.nr_hugepages=N', or PINSHIM_HUGEPAGES=thp");
}

static unsigned count_nodes(void)
{
	DIR *directory = opendir("/sys/devices/system/node");
	struct dirent *entry;
	unsigned count = 0;

	if (!directory)
		return 0;
	while ((entry = readdir(directory)))
		count += !strncmp(entry->d_name, "node", 4) && entry->d_name[4] >= '0' &&
			 entry->d_name[4] <= '9';
	closedir(directory);
	return count;
}

static void check_nodes(struct ps_doctor *doctor)
{
	unsigned count = count_nodes();

	if (count <= 1)
		ps_findings_add(&doctor->findings, PS_STATE_OK, "numa", NULL, "one node");
	else
		ps_findings_add(&doctor->findings, PS_STATE_NOTE, "numa",
				"start each process on the node of its GPU or disk: numactl "
				"--cpunodebind=N --membind=N",
				"%u nodes: memory comes from where the thread runs that pins it, "
				"or as numactl says",
				count);
}

void ps_doctor_pages(struct ps_doctor *doctor)
{
	check_transparent(doctor);
	check_pool(doctor);
	check_nodes(doctor);
}
