/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * objects ROUNDS
 *
 * A program that has nothing but many small objects: strings, maps, lists, and objects that share others,
 * made, looked up, moved about and freed. Prints a sum, so that nothing is left out.
 */
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace
{

constexpr unsigned OBJECTS = 20000;

struct Node {
	std::string name;
	std::vector<std::shared_ptr<Node>> children;
};

unsigned next_number(unsigned &state)
{
	state ^= state << 13;
	state ^= state >> 17;
	return state ^= state << 5;
}

std::string word(unsigned number)
{
	return "an object's name, too long to be kept inside: " + std::to_string(number);
}

size_t maps(unsigned &state)
{
	std::map<std::string, std::string> sorted;
	std::unordered_map<unsigned, std::list<unsigned>> grouped;
	size_t sum = 0;

	for (unsigned i = 0; i < OBJECTS; i++) {
		const unsigned number = next_number(state) % OBJECTS;

		sorted[word(number)] += "more";
		grouped[number % 997].push_back(number);
	}
	for (const auto &[name, value] : sorted)
		sum += name.size() + value.size();
	for (auto &[number, list] : grouped) {
		list.remove_if([](unsigned each) { return each % 3 == 0; });
		sum += list.size() + number;
	}
	return sum;
}

size_t tree(unsigned &state)
{
	std::vector<std::shared_ptr<Node>> nodes;
	size_t sum = 0;

	for (unsigned i = 0; i < OBJECTS; i++) {
		auto node = std::make_shared<Node>();

		node->name = word(next_number(state) % OBJECTS);
		for (unsigned child = 0; child < 3 && !nodes.empty(); child++)
			node->children.push_back(nodes[next_number(state) % nodes.size()]);
		if (nodes.size() < OBJECTS / 4)
			nodes.push_back(std::move(node));
		else
			nodes[next_number(state) % nodes.size()] = std::move(node);
	}
	for (const auto &node : nodes)
		sum += node->name.size() + node->children.size();
	return sum;
}

} // namespace

int main(int argc, char **argv)
{
	unsigned state = 2463534242;
	size_t sum = 0;

	for (long round = argc > 1 ? std::atol(argv[1]) : 1; round > 0; round--)
		sum += maps(state) + tree(state);
	std::printf("%zu\n", sum);
	return 0;
}
