#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq gcc

# 120 functions that are alike but not the same, loops and tables among them.
for ((i = 0; i < 120; i++)); do
	cat <<-END
		static const unsigned table_${i}[] = { $((i * 7)), $((i ^ 5)), $((i * i)), 1, $i };
		unsigned function$i(unsigned n, const unsigned char *s);
		unsigned function$i(unsigned n, const unsigned char *s)
		{
			unsigned sum = n;
			for (unsigned j = 0; j < n % 40 + $i; j++) {
				sum = sum * 31 + table_${i}[j % 5] + s[j % 16];
				switch (sum % 5) {
				case 0: sum ^= $i; break;
				case 1: sum += j << 3; break;
				case 2: sum -= table_${i}[(j + 1) % 5]; break;
				default: sum ^= sum >> 7;
				}
			}
			return sum;
		}
	END
done >"$INPUT/program.c"
{
	echo '#include <stdio.h>'
	echo 'int main(void) { unsigned sum = 0; const unsigned char *s ='
	echo '(const unsigned char *)"sixteen letters.";'
	for ((i = 0; i < 120; i++)); do
		echo "sum += function$i($i, s);"
	done
	printf '%s\n' 'printf("%u\n", sum); return 0; }'
} >>"$INPUT/program.c"

job <<'END'
cp "$INPUT/program.c" .
gcc -O2 -g -c -o program.o program.c && sha256sum program.o
gcc -O1 -S -o - program.c | sha256sum
gcc -o program program.o && ./program
echo 'int main(void) { return nothing; }' >wrong.c
gcc -Wall -c wrong.c
echo "status $?"
END
RANGES=(64K- 1-)
same "gcc" cc1 "*as"
finish
