/* SPDX-License-Identifier: BSD-2-Clause */
#include "held.h"

_Thread_local unsigned ps_held[PS_HELD_KINDS] __attribute__((tls_model("initial-exec")));
