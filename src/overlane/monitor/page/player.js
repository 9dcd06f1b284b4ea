// Which moment is looked at: now, as it comes; or one of the past, still or running on at some speed.

export class Player {
  // changed is called whenever another moment is looked at, with whether somebody wanted so.
  constructor(changed) {
    this.changed = changed;
    this.past = null;
    this.isFollowing = true;
    this.isPlaying = false;
    this.speed = 1;
    this.atS = 0;
    this.steppedMs = null;
  }

  begin(past) {
    const wasAt = this.past === null ? null : this.atS;
    this.past = past;
    this.isFollowing = past.head.is_live && (this.isFollowing || wasAt === null);
    this.atS = this.isFollowing ? past.lastS : Math.max(past.firstS, wasAt ?? past.firstS);
    if (!past.head.is_live && wasAt === null) this.isPlaying = false;
  }

  // What is told has grown.
  grown() {
    if (this.isFollowing) {
      this.atS = this.past.lastS;
      this.changed(false);
    }
  }

  follow() {
    if (!this.past.head.is_live) return;
    this.isFollowing = true;
    this.isPlaying = false;
    this.atS = this.past.lastS;
    this.changed(true);
  }

  seek(atS) {
    this.isFollowing = false;
    this.atS = Math.min(Math.max(atS, this.past.firstS), this.past.lastS);
    this.changed(true);
  }

  toggle() {
    if (this.isFollowing) {
      this.isFollowing = false;
    } else if (this.isPlaying) {
      this.isPlaying = false;
    } else {
      if (this.atS >= this.past.lastS) {
        if (this.past.head.is_live) return this.follow();
        this.atS = this.past.firstS;
      }
      this.isPlaying = true;
      this.steppedMs = null;
    }
    this.changed(true);
  }

  // Called before each frame is drawn.
  step(nowMs) {
    if (!this.isPlaying) return;
    if (this.steppedMs !== null) {
      this.atS += (this.speed * Math.min(250, nowMs - this.steppedMs)) / 1000;
      if (this.atS >= this.past.lastS) {
        if (this.past.head.is_live) return this.follow();
        this.atS = this.past.lastS;
        this.isPlaying = false;
      }
      this.changed(false);
    }
    this.steppedMs = nowMs;
  }

  // To what happened before, or next.
  skip(direction) {
    const moments = this.past.happenings.map((one) => this.past.momentOf(one));
    const near = 1e-6;
    const found =
      direction < 0
        ? moments.findLast((atS) => atS < this.atS - near)
        : moments.find((atS) => atS > this.atS + near);
    if (found !== undefined) this.seek(found);
    else if (direction > 0 && this.past.head.is_live) this.follow();
  }
}
