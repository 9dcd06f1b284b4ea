// From places on the globe to a plane: Lambert's azimuthal equal-area projection around the middle of the brokers, in
// which distances near the middle look right wherever on the globe that is.

const RADIANS = Math.PI / 180;

export class Projection {
  constructor(places) {
    const [x, y, z] = places
      .map(([longitude, latitude]) => onSphere(longitude, latitude))
      .reduce(([a, b, c], [d, e, f]) => [a + d, b + e, c + f], [0, 0, 0]);
    const length = Math.hypot(x, y, z) || 1;
    this.longitude = Math.atan2(y, x) / RADIANS;
    this.latitude = Math.asin(z / length) / RADIANS;
  }

  // [x, y] with y downwards, in radians of the globe; null for what lies behind it.
  at(longitude, latitude) {
    const across = (longitude - this.longitude) * RADIANS;
    const up = latitude * RADIANS;
    const middle = this.latitude * RADIANS;
    const cosine = Math.sin(middle) * Math.sin(up) + Math.cos(middle) * Math.cos(up) * Math.cos(across);
    if (cosine < -0.6) return null;
    const factor = Math.sqrt(2 / (1 + cosine));
    return [
      factor * Math.cos(up) * Math.sin(across),
      -factor * (Math.cos(middle) * Math.sin(up) - Math.sin(middle) * Math.cos(up) * Math.cos(across)),
    ];
  }
}

function onSphere(longitude, latitude) {
  const up = latitude * RADIANS;
  return [Math.cos(up) * Math.cos(longitude * RADIANS), Math.cos(up) * Math.sin(longitude * RADIANS), Math.sin(up)];
}
