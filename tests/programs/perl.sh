#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq perl

cat >"$INPUT/work.pl" <<'END'
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);

my $text = '';
$text .= "line $_ of a text that grows; " x ($_ % 7) . "\n" for 1 .. 60_000;
print length($text), ' ', sha256_hex($text), "\n";
(my $changed = $text) =~ s/line (\d+)/$1 * 2/ge;
print sha256_hex($changed), "\n";
my $count = () = $text =~ /9 of a (text|word) that \w+/g;
print "$count\n";
print join(',', (split /;/, $text)[10, 1000, 5000]), "\n";

my %words;
$words{$_ * 7919 % 100_003} .= "v$_" for 1 .. 150_000;
print scalar(keys %words), ' ', sha256_hex(join ' ', map { "$_=$words{$_}" } sort keys %words), "\n";
delete @words{grep { $_ % 2 } keys %words};
print scalar(keys %words), "\n";

my @numbers = map { ($_ * 1_103_515_245 + 12_345) % 2_147_483_648 } 1 .. 200_000;
@numbers = sort { $a <=> $b } @numbers;
print "@numbers[0, 1, 100_000, -1]\n";
my $packed = pack 'N*', @numbers;
print length($packed), ' ', sha256_hex($packed), ' ', (unpack 'N*', $packed)[777], "\n";
my $big = 'x' x 30_000_000;
substr $big, 15_000_000, 5, 'y' x 1_000_000;
print length($big), ' ', ($big =~ tr/y//), "\n";
$big = '' ;

$| = 1;
for my $child (1 .. 3) {
	my $pid = fork // die;
	if (!$pid) {
		print "child $child ", sha256_hex($text . 'z' x ($child * 1_000_000)), "\n";
		exit $child;
	}
	waitpid $pid, 0;
	print 'status ', $? >> 8, "\n";
}
warn "to stderr\n";
print `echo from a shell`;
die "ends with an error\n";
END
job <<'END'
export PERL_HASH_SEED=0
perl "$INPUT/work.pl"
echo "status $?"
END
RANGES=(64K- 4K- 1-)
same "perl" perl
finish
