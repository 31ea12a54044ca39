/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_SETTINGS_H
#define PS_SETTINGS_H
/*
 * The options that run and doctor share: those that stand for the settings of pinshim(7), and where
 * the libraries are. A setting that is given goes into the environment at once, as the program that is
 * started gets it.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

#include "config.h"
#include "preload.h"
#include "text.h"

#define PS_SETTINGS_MAX 24

struct ps_settings {
	const char *given[PS_SETTINGS_MAX]; /* the value of each option; NULL: it was not given */
	bool aio;                           /* --aio */
	const char *directory;              /* --library, or NULL */
};

/*
 * Appends the options for getopt_long() to those of the command, which are ended by one without a
 * name. There must be room for PS_SETTINGS_MAX more.
 */
void ps_settings_options(struct option *option);

/*
 * Takes an option that getopt_long() returned. false where it is none of these. What is wrong with
 * its value ps_settings_read() finds.
 */
bool ps_settings_take(struct ps_settings *settings, int value, const char *argument);

/*
 * Reads the environment as the libraries will. 0; -EINVAL where an option has a wrong value, or one
 * without the other that it is for; -EBADMSG where a variable has that was there before. *why names it,
 * its value and what is accepted.
 */
int ps_settings_read(const struct ps_settings *settings, struct ps_config *config,
		     struct ps_text *why);

/* Writes NAME=VALUE, quoted for a shell, for each option that was given, with a space before each. */
void ps_settings_write(const struct ps_settings *settings, FILE *to);

/* A word for a shell, in quotes where it needs them. */
void ps_settings_quote(const char *word, FILE *to);

/* The lines of --help. */
void ps_settings_usage(FILE *to);

#endif
