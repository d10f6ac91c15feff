export class SluiceError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

export class ConnectionFailed extends SluiceError {}

export class Refused extends SluiceError {
  constructor(status, problem, retryAfter) {
    super(`${status}: ${problem.detail || problem.title || "no reason was given"}`);
    this.status = status;
    this.code = problem.code ?? "";
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

export class SkipRetry extends SluiceError {}

export class RetryAfter extends SluiceError {
  constructor(seconds, reason = `try again after ${seconds} s`) {
    super(reason);
    this.seconds = seconds;
  }
}

export class Throttled extends SluiceError {
  constructor(seconds = 0, reason = "throttled") {
    super(reason);
    this.seconds = seconds;
  }
}
