/* What a pod's sandbox and an idle container run: waits, reaps orphans, ends at once on SIGTERM. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void quit(int signal)
{
	(void)signal;
	_exit(0);
}

static void reap(int signal)
{
	(void)signal;
	while (waitpid(-1, 0, WNOHANG) > 0)
		;
}

int main(void)
{
	struct sigaction action = { .sa_flags = SA_NOCLDSTOP };

	action.sa_handler = quit;
	sigaction(SIGTERM, &action, 0);
	sigaction(SIGINT, &action, 0);
	action.sa_handler = reap;
	sigaction(SIGCHLD, &action, 0);
	for (;;)
		pause();
}
