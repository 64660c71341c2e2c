// The one place that names the vendored Preact.
export {
  html, render, useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from '../vendor/preact-htm.js';
