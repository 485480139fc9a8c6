/*
 * A gate that is open until a fault closes it: as a CNI plugin (CNI_COMMAND is set) before the bridge, or as an OCI
 * hook whose kind is the first argument. It is closed for KIND and NAME by the file $PLEGTRACE_LAB/gates/KIND-NAME, for
 * all of a kind by KIND-all: "sleep SECONDS" waits that long, "take SECONDS" no longer than the file exists,
 * "flock PATH SECONDS" takes a lock before, "ask PATH" waits for the answer of an agent, "fail WORDS" fails with these. KIND is "cni" (ADD) or
 * "cniDelete" (DEL) and NAME the pod's name, or the hook's kind and the container's id. Who has waited adds a line to
 * gates/passed: KIND, NAME and the milliseconds by its own clock.
 *
 * With the arguments "agent PATH" it is that agent: it accepts connections and answers nobody.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static char input[1 << 16];

static void wait_seconds(double seconds)
{
	struct timespec left = { .tv_sec = seconds, .tv_nsec = (seconds - (long)seconds) * 1e9 };

	while (nanosleep(&left, &left) != 0)
		;
}

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

/* Waits so long at most, in steps, and no longer than the file of the orders exists. */
static void wait_or_open(FILE *orders, double seconds)
{
	const double step = 0.05;
	double until = now() + seconds, left;
	struct stat file;

	while ((left = until - now()) > 0 && fstat(fileno(orders), &file) == 0 && file.st_nlink > 0)
		wait_seconds(left < step ? left : step);
}

/* Copies the word after `key` in `text` up to one of `ends`. */
static int word_after(const char *text, const char *key, const char *ends, char *word, size_t size)
{
	const char *start = text ? strstr(text, key) : 0;
	size_t length;

	if (!start)
		return 0;
	start += strlen(key);
	length = strcspn(start, ends);
	if (length == 0 || length >= size)
		return 0;
	memcpy(word, start, length);
	word[length] = 0;
	return 1;
}

static FILE *open_file(const char *lab, const char *first, const char *second, const char *mode)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/gates/%s%s", lab, first, second) >= (int)sizeof(path))
		return 0;
	return fopen(path, mode);
}

static void passed(const char *lab, const char *kind, const char *name, double began)
{
	FILE *log = open_file(lab, "passed", "", "ae");

	if (!log)
		return;
	fprintf(log, "%s %s %ld\n", kind, name, (long)((now() - began) * 1e3));
	fclose(log);
}

static int address_of(const char *path, struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(address->sun_path))
		return 1;
	strcpy(address->sun_path, path);
	return 0;
}

/* Asks the agent at `path`, and waits for its answer. */
static int ask(const char *path)
{
	struct sockaddr_un address;
	char answer[16];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || address_of(path, &address) || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		return 1;
	if (send(fd, "ADD\n", 4, MSG_NOSIGNAL) != 4)
		return 1;
	return recv(fd, answer, sizeof(answer), 0) > 0 ? 0 : 1;
}

static int agent(const char *path)
{
	struct sockaddr_un address;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || address_of(path, &address) || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		return 1;
	if (listen(fd, 16) != 0)
		return 1;
	while (accept(fd, 0, 0) >= 0)
		; /* Whoever it is stays connected. */
	return 1;
}

static int pass(const char *kind, const char *name)
{
	const char *lab = getenv("PLEGTRACE_LAB");
	char own[512], lock[4096];
	double seconds, began = now();
	FILE *orders;
	int fd;

	if (!lab || snprintf(own, sizeof(own), "-%s", name) >= (int)sizeof(own))
		return 0;
	orders = open_file(lab, kind, own, "re");
	if (!orders)
		orders = open_file(lab, kind, "-all", "re");
	if (!orders)
		return 0; /* Open. */
	if (fscanf(orders, "sleep %lf", &seconds) == 1) {
		wait_seconds(seconds);
		passed(lab, kind, name, began);
		return 0;
	}
	rewind(orders);
	if (fscanf(orders, "take %lf", &seconds) == 1) {
		wait_or_open(orders, seconds);
		passed(lab, kind, name, began);
		return 0;
	}
	rewind(orders);
	if (fscanf(orders, "fail %4095[^\n]", lock) == 1) {
		printf("{\"cniVersion\":\"0.4.0\",\"code\":100,\"msg\":\"%s\"}\n", lock);
		return 1;
	}
	rewind(orders);
	if (fscanf(orders, "ask %4095s", lock) == 1)
		return ask(lock);
	rewind(orders);
	if (fscanf(orders, "flock %4095s %lf", lock, &seconds) != 2)
		return 1;
	fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX) != 0)
		return 1;
	wait_seconds(seconds);
	return 0;
}

int main(int argc, char **argv)
{
	const char *command = getenv("CNI_COMMAND");
	size_t used = 0;
	ssize_t got;
	char name[256];
	int added;

	if (argc == 3 && strcmp(argv[1], "agent") == 0)
		return agent(argv[2]);
	while (used < sizeof(input) - 1 && (got = read(0, input + used, sizeof(input) - 1 - used)) > 0)
		used += got;
	if (command) {
		if (strcmp(command, "VERSION") == 0)
			puts("{\"cniVersion\":\"0.4.0\",\"supportedVersions\":[\"0.3.1\",\"0.4.0\"]}");
		added = strcmp(command, "ADD") == 0;
		if (!added && strcmp(command, "DEL") != 0)
			return 0;
		if (word_after(getenv("CNI_ARGS"), "K8S_POD_NAME=", ";", name, sizeof(name)) &&
		    pass(added ? "cni" : "cniDelete", name))
			return 1;
		if (!added)
			return 0;
		/* An empty result: the bridge does all the work. */
		puts("{\"cniVersion\":\"0.4.0\",\"interfaces\":[],\"ips\":[],\"dns\":{}}");
		return 0;
	}
	if (argc < 2 || !word_after(input, "\"id\":\"", "\"", name, sizeof(name)))
		return 0;
	return pass(argv[1], name);
}
