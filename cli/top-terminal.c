/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * top-terminal.c - the terminal and the signals of `tarn top`
 *
 * Signals are blocked and read from a descriptor, so that each way out passes top_terminal_close(),
 * which gives the terminal back as it was; there is no handler, and no global. The command's thread.
 * Next to read: top.c.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "clock.h"
#include "output.h"
#include "top.h"

/* The other screen, no cursor; and back. What was on the terminal before is there again. */
#define TERMINAL_ENTER "\033[?1049h\033[?25l\033[H\033[2J"
#define TERMINAL_LEAVE "\033[0m\033[?25h\033[?1049l"

#define TERMINAL_PIECE 1024
#define LEAVE_WAIT_MS  1000

/* Where in the bytes of a key we are. */
enum keys { KEYS_PLAIN, KEYS_ESCAPE, KEYS_SEQUENCE };

struct top_terminal {
	bool interactive, entered;
	enum keys keys;
	bool has_keys; /* standard input is a terminal, too */
	int signals;   /* signalfd */
	int epoll;     /* of it, and of standard input */
	sigset_t mask; /* as it was */
	struct termios settings;
};

static void add_signals(bool interactive, sigset_t *ret_set)
{
	struct sigaction action;

	sigemptyset(ret_set);
	sigaddset(ret_set, SIGINT);
	sigaddset(ret_set, SIGTERM);
	/* nohup: it is to be ignored, which a blocked signal is not. */
	if (sigaction(SIGHUP, NULL, &action) < 0 || action.sa_handler != SIG_IGN)
		sigaddset(ret_set, SIGHUP);
	if (interactive) {
		sigaddset(ret_set, SIGQUIT);
		sigaddset(ret_set, SIGTSTP);
		sigaddset(ret_set, SIGWINCH);
	}
}

static int watch(const struct top_terminal *terminal, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(terminal->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int top_terminal_open(bool interactive, struct top_terminal **ret_terminal)
{
	struct top_terminal *terminal = calloc(1, sizeof(*terminal));
	sigset_t set;
	int status;

	*ret_terminal = terminal;
	if (terminal == NULL)
		return -ENOMEM;
	terminal->interactive = interactive;
	add_signals(interactive, &set);
	sigprocmask(SIG_BLOCK, &set, &terminal->mask);
	terminal->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	terminal->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (terminal->signals < 0 || terminal->epoll < 0)
		return -errno;
	status = watch(terminal, terminal->signals);
	if (status == 0 && interactive && isatty(STDIN_FILENO)) {
		terminal->has_keys = true;
		status = watch(terminal, STDIN_FILENO);
	}
	return status;
}

/* Until the terminal takes something, which one that was stopped by Ctrl-S does not. */
static bool writable(int wait_ms)
{
	struct pollfd pollfd = {.fd = STDOUT_FILENO, .events = POLLOUT};

	return poll(&pollfd, 1, wait_ms) > 0;
}

int top_terminal_write(struct top_terminal *terminal, const char *text, size_t n)
{
	while (n > 0) {
		struct pollfd pollfds[] = {{.fd = STDOUT_FILENO, .events = POLLOUT},
					   {.fd = terminal->signals, .events = POLLIN}};
		size_t piece = n < TERMINAL_PIECE ? n : TERMINAL_PIECE;
		int status;

		if (poll(pollfds, 2, -1) < 0 && errno != EINTR)
			return -errno;
		if (pollfds[0].revents == 0 && pollfds[1].revents != 0)
			return -ECANCELED;
		if (pollfds[0].revents == 0)
			continue;
		status = output_write_all(STDOUT_FILENO, text, piece);
		if (status < 0)
			return status;
		text += piece;
		n -= piece;
	}
	return 0;
}

void top_terminal_let(const struct top_terminal *terminal)
{
	sigprocmask(SIG_SETMASK, &terminal->mask, NULL);
}

void top_terminal_hold(const struct top_terminal *terminal)
{
	sigset_t set;

	add_signals(terminal->interactive, &set);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Keys come one by one and are not shown. The keys of signals stay: Ctrl-C, Ctrl-Z. */
void top_terminal_enter(struct top_terminal *terminal)
{
	struct termios raw;

	if (!terminal->interactive || terminal->entered)
		return;
	terminal->entered = true;
	if (terminal->has_keys) {
		/* In the background the settings are the shell's: stops until it is in front. */
		if (tcgetpgrp(STDIN_FILENO) != getpgrp())
			raise(SIGTTOU);
		if (tcgetattr(STDIN_FILENO, &terminal->settings) < 0)
			terminal->has_keys = false;
	}
	if (terminal->has_keys) {
		raw = terminal->settings;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	(void)output_write_all(STDOUT_FILENO, TERMINAL_ENTER, strlen(TERMINAL_ENTER));
}

/* The terminal may be gone: there is nobody to tell then. */
static void leave(struct top_terminal *terminal)
{
	if (!terminal->entered)
		return;
	terminal->entered = false;
	if (writable(LEAVE_WAIT_MS))
		(void)output_write_all(STDOUT_FILENO, TERMINAL_LEAVE, strlen(TERMINAL_LEAVE));
	if (terminal->has_keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &terminal->settings);
}

/* Signals that have come and were not read are dropped: they ask for what is being done. */
static void drop_signals(const struct top_terminal *terminal)
{
	struct signalfd_siginfo info;

	while (read(terminal->signals, &info, sizeof(info)) > 0)
		;
}

void top_terminal_close(struct top_terminal *terminal)
{
	if (terminal == NULL)
		return;
	leave(terminal);
	if (terminal->signals >= 0) {
		drop_signals(terminal);
		close(terminal->signals);
	}
	if (terminal->epoll >= 0)
		close(terminal->epoll);
	sigprocmask(SIG_SETMASK, &terminal->mask, NULL);
	free(terminal);
}

int top_terminal_fd(const struct top_terminal *terminal)
{
	return terminal->epoll;
}

void top_terminal_size(const struct top_terminal *terminal, size_t *ret_width, size_t *ret_height)
{
	struct winsize size;

	(void)terminal;
	*ret_width = 80;
	*ret_height = 24;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
		return;
	if (size.ws_col > 0)
		*ret_width = size.ws_col;
	if (size.ws_row > 0)
		*ret_height = size.ws_row;
}

/* As others do at Ctrl-Z: the shell gets its terminal, and `fg` brings the view back. */
static void stop(struct top_terminal *terminal)
{
	sigset_t set;

	leave(terminal);
	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	/* Not SIGSTOP: where no shell could bring it back, nothing happens. */
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	sigprocmask(SIG_BLOCK, &set, NULL);
	top_terminal_enter(terminal);
}

/* True: there was one. */
static bool read_signal(struct top_terminal *terminal, enum top_input *ret_input)
{
	struct signalfd_siginfo info;

	if (read(terminal->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return false;
	*ret_input = TOP_INPUT_END;
	if (info.ssi_signo == SIGTSTP)
		stop(terminal);
	if (info.ssi_signo == SIGTSTP || info.ssi_signo == SIGWINCH)
		*ret_input = TOP_INPUT_REDRAW;
	return true;
}

/*
 * One byte of what was typed. The arrows and the like come as several, ESC [ ... and a letter, and mean
 * nothing here.
 */
static enum top_input read_key(struct top_terminal *terminal, char *ret_key)
{
	char byte;
	ssize_t n = read(STDIN_FILENO, &byte, 1);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return TOP_INPUT_REDRAW;
	if (n <= 0)
		return TOP_INPUT_END; /* the terminal is gone */
	*ret_key = '\0';
	switch (terminal->keys) {
	case KEYS_PLAIN:
		if (byte == '\033')
			terminal->keys = KEYS_ESCAPE;
		else
			*ret_key = byte;
		break;
	case KEYS_ESCAPE:
		terminal->keys = byte == '[' || byte == 'O' ? KEYS_SEQUENCE : KEYS_PLAIN;
		break;
	case KEYS_SEQUENCE:
		if (byte >= '@' && byte <= '~')
			terminal->keys = KEYS_PLAIN;
		break;
	}
	return TOP_INPUT_KEY;
}

enum top_input top_terminal_wait(struct top_terminal *terminal, uint64_t deadline_ns, char *ret_key)
{
	for (;;) {
		uint64_t now_ns = clock_now_ns();
		int wait_ms = now_ns >= deadline_ns ? 0 : (int)((deadline_ns - now_ns) / 1000000) + 1;
		struct epoll_event event;
		enum top_input input;
		int n = epoll_wait(terminal->epoll, &event, 1, wait_ms);

		if (n < 0 && errno != EINTR)
			return TOP_INPUT_END;
		if (n > 0 && event.data.fd == terminal->signals) {
			if (read_signal(terminal, &input))
				return input;
		} else if (n > 0) {
			return read_key(terminal, ret_key);
		}
		if (n == 0 && clock_now_ns() >= deadline_ns)
			return TOP_INPUT_TIME;
	}
}
